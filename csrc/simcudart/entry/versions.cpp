// Versions, and entry points of the driver by name.
#include "../call.hpp"

using namespace allranks::cudart;

namespace {

cudaError_t entry_point(const char* symbol, void** function, unsigned version, unsigned long long flags,
                        cudaDriverEntryPointQueryResult* status) {
  return call(Needs::kDriver, [&]() -> CUresult {
    if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result =
        ALLRANKS_DRIVER(cuGetProcAddress)(symbol, function, static_cast<int>(version), flags, &found);
    if (result != CUDA_SUCCESS) return result;
    if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
    return found != CU_GET_PROC_ADDRESS_SUCCESS && status == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
  });
}

// For programs whose default stream is one for each thread.
unsigned long long per_thread(unsigned long long flags) {
  return flags == cudaEnableDefault ? static_cast<unsigned long long>(cudaEnablePerThreadDefaultStream) : flags;
}

}  // namespace

extern "C" {

// [cuda_runtime_api.h] 0 without a driver.
cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  return call(Needs::kNothing, [&]() -> CUresult {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 0;
    return has_driver() ? ALLRANKS_DRIVER(cuDriverGetVersion)(version) : CUDA_SUCCESS;
  });
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) {
  return call(Needs::kNothing, [&] {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                              cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, function, CUDART_VERSION, flags, status);
}

cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int version,
                                                       unsigned long long flags,
                                                       cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, function, version, flags, status);
}

__attribute__((visibility("default"))) cudaError_t CUDARTAPI cudaGetDriverEntryPoint_ptsz(
    const char* symbol, void** function, unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, function, CUDART_VERSION, per_thread(flags), status);
}

__attribute__((visibility("default"))) cudaError_t CUDARTAPI
cudaGetDriverEntryPointByVersion_ptsz(const char* symbol, void** function, unsigned int version,
                                      unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  return entry_point(symbol, function, version, per_thread(flags), status);
}

}  // extern "C"
