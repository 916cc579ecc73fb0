// The world of a program that knows nothing of simcu.h: one node with one process, made at the first driver call. And
// what such a program is told when it calls what is not simulated.
//
// The default process is the one object behind the C ABI, because cuda.h gives its functions nothing else to find their
// state by. It is never destroyed: threads may still be in the driver while the program ends.
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

#include "config.hpp"
#include "fault_plan.hpp"
#include "generated.hpp"
#include "machine.hpp"
#include "node.hpp"
#include "process.hpp"
#include "thread_state.hpp"

namespace allranks::sim {

namespace {

Process& make_default_process() {
  DefaultMachine wanted = default_machine();
  const char* const faults = std::getenv("SIMCU_FAULTS");
  FaultPlan plan = fault_plan(faults == nullptr ? "" : faults);
  if (wanted.objection.empty() && !plan.objection.empty()) wanted.objection = "SIMCU_FAULTS: " + plan.objection;
  if (!wanted.objection.empty()) {
    std::fprintf(stderr, "simcuda: %s; every call answers CUDA_ERROR_NO_DEVICE\n", wanted.objection.c_str());
    machine_named("h100", 1, wanted.machine);
  }
  auto* const node = new Node(wanted.machine);
  node->plan_faults(std::move(plan.faults));
  Process& process = node->create_process(
      0, {.struct_bytes = sizeof(simcuPlacement), .rule = SIMCU_PLACE_LOW, .base_offset_bytes = 0});
  if (!wanted.objection.empty()) process.unusable = CUDA_ERROR_NO_DEVICE;
  return process;
}

Process& default_process() {
  static Process& process = make_default_process();
  return process;
}

// Once a name in this real process, whatever nodes come and go.
void say_unsupported(const char* name) {
  static std::mutex mutex;
  static std::unordered_set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(name).second) std::fprintf(stderr, "simcuda: %s is not simulated: CUDA_ERROR_NOT_SUPPORTED\n", name);
}

}  // namespace

Process& calling_process() {
  Process* const bound = this_thread().process;
  return bound != nullptr ? *bound : default_process();
}

int not_supported(const char* name) {
  say_unsupported(name);
  Process& process = calling_process();
  process.node().incidents.add_unsupported(process, this_thread().label, name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

int not_supported_call(const char* name) {
  Process& process = calling_process();
  if (process.node().forked()) return CUDA_ERROR_NOT_INITIALIZED;
  const Turnstile::Turn turn(process.node().turnstile);
  return process.unwound ? CUDA_ERROR_LAUNCH_TIMEOUT : not_supported(name);
}

}  // namespace allranks::sim
