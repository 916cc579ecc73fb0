// Functions of the host program that a stream calls.
//
// In an embedded driver each runs on a thread of its own, because a stream's work runs on a fiber, whose stack is small
// and which changes threads. Outside of a run other threads go on meanwhile; in a run the function keeps the turn.
#include "cuda_api.hpp"

#include <atomic>
#include <thread>

using namespace allranks::sim;

namespace {

void call_on_thread(Turnstile& turnstile, const HostFunction& function) {
  std::atomic<bool> done{false};
  std::thread thread([&] {
    this_thread().in_host_function = true;
    function();
    done.store(true, std::memory_order_release);
    turnstile.wake_outside();
  });
  if (!turnstile.in_run()) {
    const WaitSpec spec{.ready = [&] { return done.load(std::memory_order_acquire); },
                        .key = &done,
                        .call = "host function",
                        .object = "a function of the program that a stream calls",
                        .polled = true};
    turnstile.wait(spec);
  }
  const Blocking blocking;
  thread.join();
}

void call(const Process& process, const HostFunction& function) {
  if (process.host_functions != nullptr) {
    process.host_functions->call(function);
  } else {
    call_on_thread(process.node().turnstile, function);
  }
}

}  // namespace

extern "C" {

// [cuda.h] Not called when the context is broken.
CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return entry_on_stream(Call::kLaunchHostFunc, handle, [&](const Process&, Stream& stream) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    stream.enqueue("cuLaunchHostFunc", [&process = stream.context().process, function, data] {
      call(process, {.function = function, .data = data});
      return CUDA_SUCCESS;
    });
    return CUDA_SUCCESS;
  });
}

// [cuda.h] Called exactly once, with the error of a broken context.
CUresult CUDAAPI cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data, unsigned int flags) {
  return entry_on_stream(Call::kStreamAddCallback, handle, [&](const Process&, Stream& stream) {
    if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    stream.enqueue(
        "cuStreamAddCallback",
        [&context = stream.context(), handle, callback, data] {
          call(context.process, {.callback = callback, .data = data, .stream = handle, .status = context.sticky_error});
          return CUDA_SUCCESS;
        },
        Stream::When::kEvenIfBroken);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
