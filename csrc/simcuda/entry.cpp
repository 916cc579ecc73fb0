#include "entry.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

namespace allranks::sim {

CUresult check_context(const Process& process) {
  const Context* const context = process.current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context->active ? context->sticky_error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

namespace detail {

namespace {

// Takes the faults out whose call this is, among those that are codes or among the others, and visits each.
template <typename Visit>
void take_faults(Process& process, Call call, bool codes, const Visit& visit) {
  for (auto fault = process.faults.begin(); fault != process.faults.end();) {
    const bool meant = (fault->action == FaultAction::kFail) == codes;
    if (meant && (fault->call == call || fault->call == Call::kCount) && fault->countdown-- == 0) {
      if (fault->planned != Process::kNotPlanned) process.node().faults_met[fault->planned] = true;
      visit(*fault);
      fault = process.faults.erase(fault);
    } else {
      ++fault;
    }
  }
}

CUresult injected(Process& process, Call call) {
  CUresult code = CUDA_SUCCESS;
  take_faults(process, call, true, [&](const Process::Fault& fault) {
    if (code == CUDA_SUCCESS) code = fault.code;
  });
  return code;
}

// Not a process that cannot be named from here, nor the one that the broker is in.
void kill_real(const Process& process) {
  if (process.pid >= 0) kill(process.pid != 0 ? process.pid : getpid(), SIGKILL);
}

}  // namespace

void Disturbance::begin(Process& process, Call call) {
  std::chrono::milliseconds delay{0};
  bool now = false;
  {
    const Turnstile::Turn turn(process.node().turnstile);
    take_faults(process, call, false, [&](const Process::Fault& fault) {
      delay = std::max(delay, fault.delay);
      now |= fault.action == FaultAction::kKill;
      if (fault.action == FaultAction::kKillAfter) kills_ = &process;
      if (fault.action != FaultAction::kDelay) process.killed = true;
    });
  }
  std::this_thread::sleep_for(delay);
  if (!now) return;
  kills_ = nullptr;
  kill_real(process);
  killed_ = true;
}

Disturbance::~Disturbance() {
  if (kills_ != nullptr) kill_real(*kills_);
}

CUresult refusal(Process& process, Call call, Needs needs) {
  if (process.unusable != CUDA_SUCCESS) return process.unusable;
  if (needs != Needs::kNothing && !process.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (process.unwound) return CUDA_ERROR_LAUNCH_TIMEOUT;
  if (!process.faults.empty()) {
    if (const CUresult code = injected(process, call); code != CUDA_SUCCESS) return code;
  }
  return needs == Needs::kContext ? check_context(process) : CUDA_SUCCESS;
}

void log_call(Process& process, Call call, CUresult result) {
  if (!process.keeps_log || (!is_logged(call) && result == CUDA_SUCCESS)) return;
  const Label& label = this_thread().label;
  process.log.push_back({.step = label.step,
                         .call = static_cast<std::uint16_t>(call),
                         .owner = label.owner,
                         .result = static_cast<std::int32_t>(result)});
}

}  // namespace detail

}  // namespace allranks::sim
