// Attributes and properties of devices, which are the driver's attributes under other names.
#include "../call.hpp"

#include <cstddef>
#include <cstring>

using namespace allranks::cudart;

namespace {

struct NumberRow {
  int cudaDeviceProp::* field;
  CUdevice_attribute attribute;
};

struct SizeRow {
  std::size_t cudaDeviceProp::* field;
  CUdevice_attribute attribute;
};

// Elements of arrays, and fields without a sign.
struct PlaceRow {
  std::size_t offset;
  CUdevice_attribute attribute;
};

constexpr NumberRow kNumbers[] = {
    {&cudaDeviceProp::regsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {&cudaDeviceProp::warpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {&cudaDeviceProp::maxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {&cudaDeviceProp::major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {&cudaDeviceProp::minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {&cudaDeviceProp::multiProcessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {&cudaDeviceProp::integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED},
    {&cudaDeviceProp::canMapHostMemory, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY},
    {&cudaDeviceProp::maxTexture1D, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH},
    {&cudaDeviceProp::maxTexture1DMipmap, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH},
    {&cudaDeviceProp::maxTextureCubemap, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH},
    {&cudaDeviceProp::maxSurface1D, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH},
    {&cudaDeviceProp::maxSurfaceCubemap, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH},
    {&cudaDeviceProp::concurrentKernels, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS},
    {&cudaDeviceProp::ECCEnabled, CU_DEVICE_ATTRIBUTE_ECC_ENABLED},
    {&cudaDeviceProp::pciBusID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID},
    {&cudaDeviceProp::pciDeviceID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    {&cudaDeviceProp::pciDomainID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID},
    {&cudaDeviceProp::tccDriver, CU_DEVICE_ATTRIBUTE_TCC_DRIVER},
    {&cudaDeviceProp::asyncEngineCount, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
    {&cudaDeviceProp::unifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING},
    {&cudaDeviceProp::memoryBusWidth, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
    {&cudaDeviceProp::l2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {&cudaDeviceProp::persistingL2CacheMaxSize, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE},
    {&cudaDeviceProp::maxThreadsPerMultiProcessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {&cudaDeviceProp::streamPrioritiesSupported, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED},
    {&cudaDeviceProp::globalL1CacheSupported, CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED},
    {&cudaDeviceProp::localL1CacheSupported, CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED},
    {&cudaDeviceProp::regsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {&cudaDeviceProp::managedMemory, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY},
    {&cudaDeviceProp::isMultiGpuBoard, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD},
    {&cudaDeviceProp::multiGpuBoardGroupID, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID},
    {&cudaDeviceProp::hostNativeAtomicSupported, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED},
    {&cudaDeviceProp::pageableMemoryAccess, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
    {&cudaDeviceProp::concurrentManagedAccess, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
    {&cudaDeviceProp::computePreemptionSupported, CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED},
    {&cudaDeviceProp::canUseHostPointerForRegisteredMem, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM},
    {&cudaDeviceProp::cooperativeLaunch, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
    {&cudaDeviceProp::pageableMemoryAccessUsesHostPageTables,
     CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES},
    {&cudaDeviceProp::directManagedMemAccessFromHost, CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST},
    {&cudaDeviceProp::maxBlocksPerMultiProcessor, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    {&cudaDeviceProp::accessPolicyMaxWindowSize, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE},
    {&cudaDeviceProp::hostRegisterSupported, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED},
    {&cudaDeviceProp::sparseCudaArraySupported, CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED},
    {&cudaDeviceProp::hostRegisterReadOnlySupported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED},
    {&cudaDeviceProp::timelineSemaphoreInteropSupported, CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED},
    {&cudaDeviceProp::memoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
    {&cudaDeviceProp::gpuDirectRDMASupported, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED},
    {&cudaDeviceProp::gpuDirectRDMAWritesOrdering, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING},
    {&cudaDeviceProp::deferredMappingCudaArraySupported, CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED},
    {&cudaDeviceProp::ipcEventSupported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED},
    {&cudaDeviceProp::clusterLaunch, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH},
    {&cudaDeviceProp::unifiedFunctionPointers, CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS},
    {&cudaDeviceProp::deviceNumaConfig, CU_DEVICE_ATTRIBUTE_NUMA_CONFIG},
    {&cudaDeviceProp::deviceNumaId, CU_DEVICE_ATTRIBUTE_NUMA_ID},
    {&cudaDeviceProp::mpsEnabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED},
    {&cudaDeviceProp::hostNumaId, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID},
    {&cudaDeviceProp::hostNumaMultinodeIpcSupported, CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED},
};

constexpr SizeRow kSizes[] = {
    {&cudaDeviceProp::sharedMemPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {&cudaDeviceProp::memPitch, CU_DEVICE_ATTRIBUTE_MAX_PITCH},
    {&cudaDeviceProp::totalConstMem, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY},
    {&cudaDeviceProp::textureAlignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT},
    {&cudaDeviceProp::texturePitchAlignment, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT},
    {&cudaDeviceProp::surfaceAlignment, CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT},
    {&cudaDeviceProp::sharedMemPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
    {&cudaDeviceProp::sharedMemPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {&cudaDeviceProp::reservedSharedMemPerBlock, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
};

constexpr PlaceRow kPlaces[] = {
    {offsetof(cudaDeviceProp, maxThreadsDim[0]), CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X},
    {offsetof(cudaDeviceProp, maxThreadsDim[1]), CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y},
    {offsetof(cudaDeviceProp, maxThreadsDim[2]), CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z},
    {offsetof(cudaDeviceProp, maxGridSize[0]), CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X},
    {offsetof(cudaDeviceProp, maxGridSize[1]), CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y},
    {offsetof(cudaDeviceProp, maxGridSize[2]), CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z},
    {offsetof(cudaDeviceProp, maxTexture2D[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH},
    {offsetof(cudaDeviceProp, maxTexture2D[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT},
    {offsetof(cudaDeviceProp, maxTexture2DMipmap[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH},
    {offsetof(cudaDeviceProp, maxTexture2DMipmap[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT},
    {offsetof(cudaDeviceProp, maxTexture2DLinear[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH},
    {offsetof(cudaDeviceProp, maxTexture2DLinear[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT},
    {offsetof(cudaDeviceProp, maxTexture2DLinear[2]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH},
    {offsetof(cudaDeviceProp, maxTexture2DGather[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH},
    {offsetof(cudaDeviceProp, maxTexture2DGather[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT},
    {offsetof(cudaDeviceProp, maxTexture3D[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH},
    {offsetof(cudaDeviceProp, maxTexture3D[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT},
    {offsetof(cudaDeviceProp, maxTexture3D[2]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH},
    {offsetof(cudaDeviceProp, maxTexture3DAlt[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE},
    {offsetof(cudaDeviceProp, maxTexture3DAlt[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE},
    {offsetof(cudaDeviceProp, maxTexture3DAlt[2]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE},
    {offsetof(cudaDeviceProp, maxTexture1DLayered[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH},
    {offsetof(cudaDeviceProp, maxTexture1DLayered[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS},
    {offsetof(cudaDeviceProp, maxTexture2DLayered[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH},
    {offsetof(cudaDeviceProp, maxTexture2DLayered[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT},
    {offsetof(cudaDeviceProp, maxTexture2DLayered[2]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS},
    {offsetof(cudaDeviceProp, maxTextureCubemapLayered[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH},
    {offsetof(cudaDeviceProp, maxTextureCubemapLayered[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS},
    {offsetof(cudaDeviceProp, maxSurface2D[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH},
    {offsetof(cudaDeviceProp, maxSurface2D[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT},
    {offsetof(cudaDeviceProp, maxSurface3D[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH},
    {offsetof(cudaDeviceProp, maxSurface3D[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT},
    {offsetof(cudaDeviceProp, maxSurface3D[2]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH},
    {offsetof(cudaDeviceProp, maxSurface1DLayered[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH},
    {offsetof(cudaDeviceProp, maxSurface1DLayered[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS},
    {offsetof(cudaDeviceProp, maxSurface2DLayered[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH},
    {offsetof(cudaDeviceProp, maxSurface2DLayered[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT},
    {offsetof(cudaDeviceProp, maxSurface2DLayered[2]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS},
    {offsetof(cudaDeviceProp, maxSurfaceCubemapLayered[0]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH},
    {offsetof(cudaDeviceProp, maxSurfaceCubemapLayered[1]), CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS},
    {offsetof(cudaDeviceProp, gpuDirectRDMAFlushWritesOptions),
     CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS},
    {offsetof(cudaDeviceProp, memoryPoolSupportedHandleTypes), CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES},
    {offsetof(cudaDeviceProp, gpuPciDeviceID), CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID},
    {offsetof(cudaDeviceProp, gpuPciSubsystemID), CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID},
};

// A driver older than the attribute does not know it; its field stays 0.
int attribute(int device, CUdevice_attribute wanted) {
  int value = 0;
  return ALLRANKS_DRIVER(cuDeviceGetAttribute)(&value, wanted, device) == CUDA_SUCCESS ? value : 0;
}

void fill(cudaDeviceProp& properties, int device) {
  for (const NumberRow& row : kNumbers) properties.*row.field = attribute(device, row.attribute);
  for (const SizeRow& row : kSizes) {
    properties.*row.field = static_cast<std::size_t>(attribute(device, row.attribute));
  }
  for (const PlaceRow& row : kPlaces) {
    const int value = attribute(device, row.attribute);
    std::memcpy(reinterpret_cast<char*>(&properties) + row.offset, &value, sizeof value);
  }
}

}  // namespace

extern "C" {

// Both count attributes alike.
cudaError_t CUDARTAPI cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call(Needs::kDriver, [&] {
    return ALLRANKS_DRIVER(cuDeviceGetAttribute)(value, static_cast<CUdevice_attribute>(attribute), device);
  });
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call(Needs::kDriver, [&] {
    if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    cudaDeviceProp found{};
    CUresult result = ALLRANKS_DRIVER(cuDeviceGetName)(found.name, sizeof found.name, device);
    if (result == CUDA_SUCCESS) result = ALLRANKS_DRIVER(cuDeviceGetUuid)(&found.uuid, device);
    if (result == CUDA_SUCCESS) result = ALLRANKS_DRIVER(cuDeviceTotalMem)(&found.totalGlobalMem, device);
    if (result != CUDA_SUCCESS) return result;
    fill(found, device);
    *properties = found;
    return CUDA_SUCCESS;
  });
}

cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return call(Needs::kDriver, [&] { return ALLRANKS_DRIVER(cuDeviceGetPCIBusId)(text, length, device); });
}

cudaError_t CUDARTAPI cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return call(Needs::kDriver, [&] { return ALLRANKS_DRIVER(cuDeviceGetByPCIBusId)(device, text); });
}

cudaError_t CUDARTAPI cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int source, int destination) {
  return call(Needs::kDriver, [&] {
    return ALLRANKS_DRIVER(cuDeviceGetP2PAttribute)(value, static_cast<CUdevice_P2PAttribute>(attribute), source,
                                                    destination);
  });
}

// What a texture's format is called; no device is asked.
cudaChannelFormatDesc CUDARTAPI cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
  return {.x = x, .y = y, .z = z, .w = w, .f = kind};
}

}  // extern "C"
