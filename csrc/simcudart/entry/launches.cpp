// Launches of kernels that the program was compiled with.
#include "../call.hpp"
#include "../registry.hpp"

using namespace allranks::cudart;

static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));

namespace {

template <typename Body>
cudaError_t launch(const void* symbol, const Body& body) {
  return call(Needs::kContext, [&] {
    CUfunction function = nullptr;
    const cudaError_t error = registry().function_of(symbol, function);
    return error != cudaSuccess ? error : as_error(body(function));
  });
}

// The driver's word for a grid or block that cannot be; the runtime has one of its own.
cudaError_t checked(dim3 grid, dim3 block) {
  const bool empty = grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0;
  return empty ? cudaErrorInvalidConfiguration : cudaSuccess;
}

cudaError_t launch_plain(const void* symbol, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                         cudaStream_t stream) {
  return launch(symbol, [&](CUfunction function) {
    const cudaError_t error = checked(grid, block);
    if (error != cudaSuccess) return error;
    return as_error(ALLRANKS_DRIVER(cuLaunchKernel)(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                    static_cast<unsigned>(shared_bytes), stream, arguments, nullptr));
  });
}

cudaStream_t per_thread(cudaStream_t stream) { return stream == nullptr ? cudaStreamPerThread : stream; }

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaLaunchKernel(const void* symbol, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                                       cudaStream_t stream) {
  return launch_plain(symbol, grid, block, arguments, shared_bytes, stream);
}

cudaError_t CUDARTAPI cudaLaunchCooperativeKernel(const void* symbol, dim3 grid, dim3 block, void** arguments,
                                                  size_t shared_bytes, cudaStream_t stream) {
  return launch(symbol, [&](CUfunction function) {
    const cudaError_t error = checked(grid, block);
    if (error != cudaSuccess) return error;
    return as_error(ALLRANKS_DRIVER(cuLaunchCooperativeKernel)(function, grid.x, grid.y, grid.z, block.x, block.y,
                                                               block.z, static_cast<unsigned>(shared_bytes), stream,
                                                               arguments));
  });
}

// Without attributes it is a plain launch.
cudaError_t CUDARTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* symbol, void** arguments) {
  if (config == nullptr) return remember(cudaErrorInvalidValue);
  const dim3& grid = config->gridDim;
  const dim3& block = config->blockDim;
  if (config->numAttrs == 0) {
    return launch_plain(symbol, grid, block, arguments, config->dynamicSmemBytes, config->stream);
  }
  return launch(symbol, [&](CUfunction function) {
    const cudaError_t error = checked(grid, block);
    if (error != cudaSuccess) return error;
    const CUlaunchConfig given = {.gridDimX = grid.x,
                                  .gridDimY = grid.y,
                                  .gridDimZ = grid.z,
                                  .blockDimX = block.x,
                                  .blockDimY = block.y,
                                  .blockDimZ = block.z,
                                  .sharedMemBytes = static_cast<unsigned>(config->dynamicSmemBytes),
                                  .hStream = config->stream,
                                  .attrs = reinterpret_cast<CUlaunchAttribute*>(config->attrs),
                                  .numAttrs = config->numAttrs};
    return as_error(ALLRANKS_DRIVER(cuLaunchKernelEx)(&given, function, arguments, nullptr));
  });
}

__attribute__((visibility("default"))) cudaError_t CUDARTAPI cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t* config,
                                                                                      const void* symbol,
                                                                                      void** arguments) {
  if (config == nullptr) return remember(cudaErrorInvalidValue);
  cudaLaunchConfig_t own = *config;
  own.stream = per_thread(own.stream);
  return cudaLaunchKernelExC(&own, symbol, arguments);
}

}  // extern "C"
