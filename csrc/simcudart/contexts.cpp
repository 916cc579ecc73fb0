#include "contexts.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "driver.hpp"
#include "errors.hpp"
#include "registry.hpp"
#include "thread_state.hpp"

namespace allranks::cudart {

namespace {

struct Primary {
  CUcontext context = nullptr;  // null: not retained
  std::uint64_t reset_count = 0;
};

// One a process, and never destroyed: the program may call until its very end.
struct Primaries {
  std::mutex mutex;
  std::map<int, Primary> of_device;
  // Of all devices together: threads look at it in each call, without the mutex.
  std::atomic<std::uint64_t> reset_count = 0;
};

Primaries& primaries() {
  static Primaries& instance = *new Primaries;
  return instance;
}

cudaError_t retain(int device, Primary& primary) {
  if (primary.context != nullptr) return cudaSuccess;
  CUdevice handle = 0;
  CUresult result = ALLRANKS_DRIVER(cuDeviceGet)(&handle, device);
  if (result == CUDA_SUCCESS) result = ALLRANKS_DRIVER(cuDevicePrimaryCtxRetain)(&primary.context, handle);
  if (result != CUDA_SUCCESS) primary.context = nullptr;
  return as_error(result);
}

cudaError_t make_current(int device) {
  CUcontext context = nullptr;
  const std::uint64_t reset_count = primaries().reset_count;
  cudaError_t error = primary_context(device, context);
  if (error == cudaSuccess) error = as_error(ALLRANKS_DRIVER(cuCtxSetCurrent)(context));
  if (error != cudaSuccess) return error;
  ThreadState& thread = this_thread();
  thread.device = device;
  thread.context = context;
  thread.reset_count = reset_count;
  return cudaSuccess;
}

bool is_bound(const ThreadState& thread) {
  return thread.context != nullptr && thread.reset_count == primaries().reset_count;
}

}  // namespace

cudaError_t initialise() {
  static std::atomic<bool> done = false;
  if (done) return cudaSuccess;
  if (!has_driver()) return cudaErrorInsufficientDriver;  // measured
  const cudaError_t error = as_error(ALLRANKS_DRIVER(cuInit)(0));
  if (error == cudaSuccess) done = true;
  return error;
}

cudaError_t primary_context(int device, CUcontext& context) {
  const std::lock_guard lock(primaries().mutex);
  Primary& primary = primaries().of_device[device];
  const cudaError_t error = retain(device, primary);
  context = primary.context;
  return error;
}

cudaError_t use_device(int device) {
  ThreadState& thread = this_thread();
  if (is_bound(thread) && thread.device == device) {
    // The program may have changed it since.
    return as_error(ALLRANKS_DRIVER(cuCtxSetCurrent)(thread.context));
  }
  return make_current(device);
}

cudaError_t need_context() {
  const cudaError_t error = initialise();
  if (error != cudaSuccess) return error;
  ThreadState& thread = this_thread();
  if (is_bound(thread)) return cudaSuccess;
  if (thread.context == nullptr) {
    CUcontext own = nullptr;
    const CUresult result = ALLRANKS_DRIVER(cuCtxGetCurrent)(&own);
    if (result != CUDA_SUCCESS || own != nullptr) return as_error(result);
  }
  return make_current(thread.device);
}

CUcontext current_context() {
  const ThreadState& thread = this_thread();
  if (is_bound(thread)) return thread.context;
  CUcontext own = nullptr;
  return ALLRANKS_DRIVER(cuCtxGetCurrent)(&own) == CUDA_SUCCESS ? own : nullptr;
}

cudaError_t current_device(int& device) {
  const ThreadState& thread = this_thread();
  device = thread.device;
  if (!is_bound(thread)) {
    CUcontext current = nullptr;
    const CUresult result = ALLRANKS_DRIVER(cuCtxGetCurrent)(&current);
    if (result != CUDA_SUCCESS || current == nullptr) return as_error(result);
  }
  CUdevice found = 0;
  const CUresult result = ALLRANKS_DRIVER(cuCtxGetDevice)(&found);
  if (result == CUDA_ERROR_INVALID_CONTEXT) return cudaSuccess;  // the program has taken ours away
  if (result == CUDA_SUCCESS) device = found;
  return as_error(result);
}

cudaError_t reset_device() {
  int device = 0;
  const cudaError_t error = current_device(device);
  if (error != cudaSuccess) return error;
  const std::lock_guard lock(primaries().mutex);
  Primary& primary = primaries().of_device[device];
  if (primary.context == nullptr) return cudaSuccess;
  const CUresult result = ALLRANKS_DRIVER(cuDevicePrimaryCtxReset)(device);
  if (result != CUDA_SUCCESS) return as_error(result);
  registry().forget(primary.context);
  primary.context = nullptr;
  ++primaries().reset_count;
  ALLRANKS_DRIVER(cuDevicePrimaryCtxRelease)(device);
  return as_error(ALLRANKS_DRIVER(cuCtxSetCurrent)(nullptr));
}

}  // namespace allranks::cudart
