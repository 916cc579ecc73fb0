#include "entry.hpp"

namespace allranks::sim::detail {

namespace {

CUresult injected(Process& process, Call call) {
  CUresult code = CUDA_SUCCESS;
  for (auto fault = process.faults.begin(); fault != process.faults.end();) {
    if (fault->call == call && fault->countdown-- == 0) {
      if (code == CUDA_SUCCESS) code = fault->code;
      fault = process.faults.erase(fault);
    } else {
      ++fault;
    }
  }
  return code;
}

}  // namespace

CUresult refusal(Process& process, Call call, Needs needs) {
  if (process.unusable != CUDA_SUCCESS) return process.unusable;
  if (needs != Needs::kNothing && !process.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (process.unwound) return CUDA_ERROR_LAUNCH_TIMEOUT;
  if (!process.faults.empty()) {
    if (const CUresult code = injected(process, call); code != CUDA_SUCCESS) return code;
  }
  if (needs == Needs::kContext) {
    const Context* const context = process.current_context();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return context->active ? context->sticky_error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_SUCCESS;
}

void log_call(Process& process, Call call, CUresult result) {
  if (!process.keeps_log || (!is_logged(call) && result == CUDA_SUCCESS)) return;
  const Label& label = this_thread().label;
  process.log.push_back({.step = label.step,
                         .call = static_cast<std::uint16_t>(call),
                         .owner = label.owner,
                         .result = static_cast<std::int32_t>(result)});
}

}  // namespace allranks::sim::detail
