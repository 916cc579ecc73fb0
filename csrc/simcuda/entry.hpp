// What every entry point of cuda.h has in common: find the process, take the turn, check the state, inject faults,
// log the call.
#ifndef ALLRANKS_SIMCUDA_ENTRY_HPP_
#define ALLRANKS_SIMCUDA_ENTRY_HPP_

#include <cuda.h>

#include <new>

#include "calls.hpp"
#include "context.hpp"
#include "node.hpp"
#include "process.hpp"
#include "thread_state.hpp"
#include "turnstile.hpp"

namespace allranks::sim {

// What a call needs before it does anything.
enum class Needs {
  kNothing,  // works before cuInit
  kInit,     // CUDA_ERROR_NOT_INITIALIZED without cuInit
  kContext   // also CUDA_ERROR_INVALID_CONTEXT without a current context, and its sticky error
};

namespace detail {

// The code that a call returns without being carried out; CUDA_SUCCESS: go on.
CUresult refusal(Process& process, Call call, Needs needs);
void log_call(Process& process, Call call, CUresult result);

// Faults that are more than a code: what happens to the caller before the call, and once it was carried out. Made
// before the turn is taken, so that others go on.
class Disturbance {
 public:
  Disturbance(Process& process, Call call) {
    if (process.disturbed) begin(process, call);
  }
  ~Disturbance();
  Disturbance(const Disturbance&) = delete;
  Disturbance& operator=(const Disturbance&) = delete;
  // The process is gone: nothing is carried out any more.
  bool killed() const { return killed_; }

 private:
  void begin(Process& process, Call call);

  const Process* kills_ = nullptr;
  bool killed_ = false;
};

}  // namespace detail

// What a call that needs a current context answers without one, or with one that cannot be used; CUDA_SUCCESS: it can.
CUresult check_context(const Process& process);

// Runs the body of a driver call: CUresult body(Process&).
template <typename Body>
CUresult entry(Call call, Needs needs, const Body& body) {
  if (this_thread().in_host_function) return CUDA_ERROR_NOT_PERMITTED;  // [cuda.h]
  Process& process = calling_process();
  // Measured: a child forked after cuInit cannot use the driver. Asked first: another thread may have had the turn.
  if (process.node().forked()) return CUDA_ERROR_NOT_INITIALIZED;
  const detail::Disturbance disturbance(process, call);
  if (disturbance.killed()) return CUDA_ERROR_UNKNOWN;
  const Turnstile::Turn turn(process.node().turnstile);
  this_thread().call = call;
  CUresult result = detail::refusal(process, call, needs);
  if (result == CUDA_SUCCESS) {
    try {
      result = body(process);
    } catch (const std::bad_alloc&) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  detail::log_call(process, call, result);
  return result;
}

// A body that gets the current context too.
template <typename Body>
CUresult entry_in_context(Call call, const Body& body) {
  return entry(call, Needs::kContext, [&](Process& process) { return body(process, *process.current_context()); });
}

// A body that gets a stream: CUresult body(Process&, Stream&). Measured: a default stream needs a current context,
// another one does not.
template <typename Body>
CUresult entry_on_stream(Call call, CUstream handle, const Body& body) {
  return entry(call, Needs::kInit, [&](Process& process) {
    Stream* const stream = find_stream(process, handle);
    if (stream == nullptr) {
      const bool of_context = handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
      return of_context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
    }
    const Context& context = stream->context();
    if (!context.active) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context.sticky_error != CUDA_SUCCESS ? context.sticky_error : body(process, *stream);
  });
}

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_ENTRY_HPP_
