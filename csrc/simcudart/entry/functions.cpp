// Attributes of kernels, and how many blocks of them fit.
#include "../call.hpp"
#include "../registry.hpp"

using namespace allranks::cudart;

namespace {

// Calls body(function) for the kernel of a host function's address.
template <typename Body>
cudaError_t of_kernel(const void* symbol, const Body& body) {
  return call(Needs::kContext, [&] {
    CUfunction function = nullptr;
    const cudaError_t error = registry().function_of(symbol, function);
    return error != cudaSuccess ? error : as_error(body(function));
  });
}

struct Row {
  int cudaFuncAttributes::* field;
  CUfunction_attribute attribute;
};

constexpr Row kRows[] = {
    {&cudaFuncAttributes::maxThreadsPerBlock, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {&cudaFuncAttributes::numRegs, CU_FUNC_ATTRIBUTE_NUM_REGS},
    {&cudaFuncAttributes::ptxVersion, CU_FUNC_ATTRIBUTE_PTX_VERSION},
    {&cudaFuncAttributes::binaryVersion, CU_FUNC_ATTRIBUTE_BINARY_VERSION},
    {&cudaFuncAttributes::cacheModeCA, CU_FUNC_ATTRIBUTE_CACHE_MODE_CA},
    {&cudaFuncAttributes::maxDynamicSharedSizeBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
    {&cudaFuncAttributes::preferredShmemCarveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT},
    {&cudaFuncAttributes::clusterDimMustBeSet, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET},
    {&cudaFuncAttributes::requiredClusterWidth, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH},
    {&cudaFuncAttributes::requiredClusterHeight, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT},
    {&cudaFuncAttributes::requiredClusterDepth, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH},
    {&cudaFuncAttributes::clusterSchedulingPolicyPreference, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE},
    {&cudaFuncAttributes::nonPortableClusterSizeAllowed, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED},
};

struct SizeRow {
  size_t cudaFuncAttributes::* field;
  CUfunction_attribute attribute;
};

constexpr SizeRow kSizes[] = {
    {&cudaFuncAttributes::sharedSizeBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
    {&cudaFuncAttributes::constSizeBytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES},
    {&cudaFuncAttributes::localSizeBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES},
};

CUresult fill(cudaFuncAttributes& attributes, CUfunction function) {
  int value = 0;
  for (const SizeRow& row : kSizes) {
    const CUresult result = ALLRANKS_DRIVER(cuFuncGetAttribute)(&value, row.attribute, function);
    if (result != CUDA_SUCCESS) return result;
    attributes.*row.field = static_cast<size_t>(value);
  }
  for (const Row& row : kRows) {
    const CUresult result = ALLRANKS_DRIVER(cuFuncGetAttribute)(&value, row.attribute, function);
    if (result != CUDA_SUCCESS) return result;
    attributes.*row.field = value;
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* symbol) {
  return of_kernel(symbol, [&](CUfunction function) {
    if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    cudaFuncAttributes found{};
    const CUresult result = fill(found, function);
    if (result == CUDA_SUCCESS) *attributes = found;
    return result;
  });
}

cudaError_t CUDARTAPI cudaFuncSetAttribute(const void* symbol, cudaFuncAttribute attribute, int value) {
  return of_kernel(symbol, [&](CUfunction function) {
    return ALLRANKS_DRIVER(cuFuncSetAttribute)(function, static_cast<CUfunction_attribute>(attribute), value);
  });
}

cudaError_t CUDARTAPI cudaFuncSetCacheConfig(const void* symbol, cudaFuncCache config) {
  return of_kernel(symbol, [&](CUfunction function) {
    return ALLRANKS_DRIVER(cuFuncSetCacheConfig)(function, static_cast<CUfunc_cache>(config));
  });
}

cudaError_t CUDARTAPI cudaFuncGetName(const char** name, const void* symbol) {
  return call(Needs::kDriver, [&] {
    if (name == nullptr) return cudaErrorInvalidValue;
    const Kernel* const kernel = registry().kernel_of(symbol);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *name = kernel->name.c_str();
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  return of_kernel(symbol, [&](CUfunction found) {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *function = found;
    return CUDA_SUCCESS;
  });
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* symbol, int block_size,
                                                                    size_t shared_bytes) {
  return of_kernel(symbol, [&](CUfunction function) {
    return ALLRANKS_DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)(blocks, function, block_size, shared_bytes);
  });
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* symbol,
                                                                             int block_size, size_t shared_bytes,
                                                                             unsigned int flags) {
  if (flags == cudaOccupancyDefault) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, symbol, block_size, shared_bytes);
  }
  return of_kernel(symbol, [&](CUfunction function) {
    return ALLRANKS_DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(blocks, function, block_size,
                                                                                 shared_bytes, flags);
  });
}

}  // extern "C"
