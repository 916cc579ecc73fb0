// Modules of host-compiled kernels, and launches.
#include "cuda_api.hpp"

#include <algorithm>

#include "../kernel.hpp"

using namespace allranks::sim;

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  return entry_in_context(Call::kModuleLoadData, [&](Process& process, const Context& context) {
    if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *module = context.modules->load(image);
    if (*module == nullptr && process.records_machine_code) *module = context.modules->load_machine_code();
    if (*module != nullptr) return CUDA_SUCCESS;
    process.node().incidents.add(process, this_thread().label, "unsupported", "cuModuleLoadData",
                                 "machine code for a GPU is not executed here");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  });
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  return entry_in_context(Call::kModuleUnload, [&](Process&, const Context& context) {
    return context.modules->unload(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return entry_in_context(Call::kModuleGetFunction, [&](Process&, const Context& context) {
    if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!context.modules->known(module)) return CUDA_ERROR_INVALID_HANDLE;
    *function = context.modules->function(module, name);
    return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
  });
}

// One-dimensional grids. The number of lanes is the machine's, or the block's threads if those are fewer.
CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int,
                                CUstream stream_handle, void** parameters, void** extra) {
  return entry_in_context(Call::kLaunchKernel, [&](Process& process, Context& context) {
    std::shared_ptr<const Kernel> kernel = find_kernel(process, function);
    Stream* const stream = find_stream(process, stream_handle);
    if (!kernel || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y == 0 || block_z == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (block_x * block_y * block_z > 1024 || (!kernel->parameter_bytes.empty() && parameters == nullptr)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (kernel->entry == nullptr) {
      launch_kernel(context, *stream, std::move(kernel), {}, nullptr);
      return CUDA_SUCCESS;
    }
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || extra != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    const auto lanes = static_cast<unsigned>(process.node().machine.lanes);
    launch_kernel(context, *stream, std::move(kernel), {.block_count = grid_x, .lane_count = std::min(lanes, block_x)},
                  parameters);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int, size_t) {
  return entry_in_context(Call::kOccupancyMaxActiveBlocksPerMultiprocessor, [&](Process& process, const Context&) {
    if (blocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!find_kernel(process, function)) return CUDA_ERROR_INVALID_HANDLE;
    *blocks = process.node().machine.blocks_per_multiprocessor;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
