// Devices: which there are, which a thread uses, what is set for them.
#include "../call.hpp"
#include "../thread_state.hpp"

using namespace allranks::cudart;

namespace {

CUresult count_devices(int& count) { return ALLRANKS_DRIVER(cuDeviceGetCount)(&count); }

bool is_device(int device) {
  int count = 0;
  return count_devices(count) == CUDA_SUCCESS && device >= 0 && device < count;
}

// Calls body(current device).
template <typename Body>
cudaError_t of_current_device(const Body& body) {
  return call(Needs::kDriver, [&] {
    int device = 0;
    const cudaError_t error = current_device(device);
    return error != cudaSuccess ? error : as_error(body(device));
  });
}

}  // namespace

extern "C" {

// [cuda_runtime_api.h] No device is an error.
cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  return call(Needs::kDriver, [&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    const cudaError_t error = as_error(count_devices(*count));
    return error == cudaSuccess && *count == 0 ? cudaErrorNoDevice : error;
  });
}

cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  return of_current_device([&](int current) {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = current;
    return cudaSuccess;
  });
}

// [cuda_runtime_api.h, since 12.0] Makes the primary context at once.
cudaError_t CUDARTAPI cudaSetDevice(int device) {
  return call(Needs::kDriver, [&] { return is_device(device) ? use_device(device) : cudaErrorInvalidDevice; });
}

// Makes the primary context, and leaves the thread's device as it is.
cudaError_t CUDARTAPI cudaInitDevice(int device, unsigned int device_flags, unsigned int flags) {
  return call(Needs::kDriver, [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    if ((flags & ~static_cast<unsigned>(cudaInitDeviceFlagsAreValid)) != 0) return cudaErrorInvalidValue;
    if ((flags & cudaInitDeviceFlagsAreValid) != 0) {
      const cudaError_t error = as_error(ALLRANKS_DRIVER(cuDevicePrimaryCtxSetFlags)(device, device_flags));
      if (error != cudaSuccess) return error;
    }
    CUcontext context = nullptr;
    return primary_context(device, context);
  });
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void) {
  return call(Needs::kContext, [] { return ALLRANKS_DRIVER(cuCtxSynchronize)(); });
}

// Also what is left of an error that had broken the context.
cudaError_t CUDARTAPI cudaDeviceReset(void) {
  return call(Needs::kDriver, [] {
    const cudaError_t error = reset_device();
    if (error == cudaSuccess && is_sticky(this_thread().last_error)) this_thread().last_error = cudaSuccess;
    return error;
  });
}

cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned int flags) {
  return of_current_device([&](int device) { return ALLRANKS_DRIVER(cuDevicePrimaryCtxSetFlags)(device, flags); });
}

cudaError_t CUDARTAPI cudaGetDeviceFlags(unsigned int* flags) {
  return of_current_device([&](int device) {
    int active = 0;
    return flags == nullptr ? CUDA_ERROR_INVALID_VALUE
                            : ALLRANKS_DRIVER(cuDevicePrimaryCtxGetState)(device, flags, &active);
  });
}

cudaError_t CUDARTAPI cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuCtxGetLimit)(value, static_cast<CUlimit>(limit)); });
}

cudaError_t CUDARTAPI cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuCtxSetLimit)(static_cast<CUlimit>(limit), value); });
}

cudaError_t CUDARTAPI cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  return call(Needs::kContext,
              [&] { return ALLRANKS_DRIVER(cuCtxGetCacheConfig)(reinterpret_cast<CUfunc_cache*>(config)); });
}

cudaError_t CUDARTAPI cudaDeviceSetCacheConfig(cudaFuncCache config) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuCtxSetCacheConfig)(static_cast<CUfunc_cache>(config)); });
}

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuCtxGetStreamPriorityRange)(least, greatest); });
}

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call(Needs::kDriver, [&] { return ALLRANKS_DRIVER(cuDeviceCanAccessPeer)(can, device, peer); });
}

cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return call(Needs::kContext, [&] {
    CUcontext context = nullptr;
    if (flags != 0) return cudaErrorInvalidValue;
    if (!is_device(peer)) return cudaErrorInvalidDevice;
    const cudaError_t error = primary_context(peer, context);
    return error != cudaSuccess ? error : as_error(ALLRANKS_DRIVER(cuCtxEnablePeerAccess)(context, flags));
  });
}

cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int peer) {
  return call(Needs::kContext, [&] {
    CUcontext context = nullptr;
    if (!is_device(peer)) return cudaErrorInvalidDevice;
    const cudaError_t error = primary_context(peer, context);
    return error != cudaSuccess ? error : as_error(ALLRANKS_DRIVER(cuCtxDisablePeerAccess)(context));
  });
}

}  // extern "C"
