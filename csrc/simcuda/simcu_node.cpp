// Nodes, processes and faults of simcu.h.
#include <string>
#include <utility>

#include "generated.hpp"
#include "include/simcu.h"
#include "machine.hpp"
#include "node.hpp"
#include "process.hpp"
#include "thread_state.hpp"

namespace allranks::sim {

namespace {

std::string& last_error() {
  thread_local std::string message;
  return message;
}

}  // namespace

void set_last_error(std::string message) { last_error() = std::move(message); }

}  // namespace allranks::sim

using namespace allranks::sim;

extern "C" {

unsigned simcuVersion(void) { return 1; }

int simcuUnsupported(const char* name) { return not_supported_call(name); }

const char* simcuLastError(void) { return last_error().c_str(); }

simcuNode simcuNodeCreate(const simcuMachine* machine) {
  std::string objection = machine == nullptr ? "machine=null" : objection_to(*machine);
  if (objection.empty()) {
    try {
      return reinterpret_cast<simcuNode>(new Node(*machine));
    } catch (const std::bad_alloc&) {
      objection = "memory_bytes=" + std::to_string(machine->memory_bytes) + ": no address space for that many devices";
    }
  }
  set_last_error(std::move(objection));
  return nullptr;
}

void simcuNodeDestroy(simcuNode node) { delete &node_of(node); }

simcuProcess simcuProcessCreate(simcuNode node, int rank, const simcuPlacement* placement) {
  const simcuPlacement where =
      placement == nullptr ? simcuPlacement{sizeof(simcuPlacement), SIMCU_PLACE_LOW, 0} : *placement;
  const std::uint64_t unit = node_of(node).machine.allocation_granularity_bytes;
  if (where.rule < SIMCU_PLACE_LOW || where.rule > SIMCU_PLACE_NEVER_REUSE) {
    set_last_error("rule=" + std::to_string(where.rule) + ": a simcuPlacementRule");
    return nullptr;
  }
  if (where.base_offset_bytes % unit != 0 || where.base_offset_bytes >= (kHighestAddress - kLowestAddress) / 2) {
    set_last_error("base_offset_bytes=" + std::to_string(where.base_offset_bytes) +
                   ": a multiple of the allocation granularity below 2^47");
    return nullptr;
  }
  const Turnstile::Turn turn(node_of(node).turnstile);
  return handle_of(node_of(node).create_process(rank, where));
}

void simcuProcessDestroy(simcuProcess process) { process_of(process).node().end_process(process_of(process)); }

void simcuProcessPlace(simcuProcess process, int rule) {
  if (rule < SIMCU_PLACE_LOW || rule > SIMCU_PLACE_NEVER_REUSE) {
    set_last_error("rule=" + std::to_string(rule) + ": a simcuPlacementRule");
  } else {
    process_of(process).space.place(rule);
  }
}

void simcuProcessWish(simcuProcess process, uint64_t address) { process_of(process).space.wish(address); }

void simcuBind(simcuProcess process) {
  ThreadState& thread = this_thread();
  thread.process = process == nullptr ? nullptr : &process_of(process);
  thread.contexts.clear();
}

int simcuFault(simcuProcess process, const char* call, uint64_t k, int code) {
  const Call named = call_named(call);
  if (named == Call::kCount) return 1;
  process_of(process).faults.push_back({named, k, static_cast<CUresult>(code)});
  return 0;
}

void simcuFaultsClear(simcuProcess process) { process_of(process).faults.clear(); }

}  // extern "C"
