// cuInit, versions.
#include "cuda_api.hpp"

using namespace allranks::sim;

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
  return entry(Call::kInit, Needs::kNothing, [&](Process& process) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    process.initialised = true;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  return entry(Call::kDriverGetVersion, Needs::kNothing, [&](Process& process) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = process.node().machine.driver_version;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
