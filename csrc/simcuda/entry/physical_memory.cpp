// Physical memory of virtual memory management: making, holding and sharing allocations. Error codes as measured on
// H200 with driver 580 (docs/hardware-facts.md), else as cuda.h says.
#include "cuda_api.hpp"

#include <string>

#include "../generated.hpp"

using namespace allranks::sim;

namespace {

// Measured: 16, which cuda.h has no name for, is accepted; types of Windows are not.
constexpr unsigned kUnnamedType = 16;

CUresult check_handle_types(const simcuMachine& machine, unsigned types) {
  constexpr unsigned kHarmless = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | kUnnamedType;
  if ((types & ~(kHarmless | CU_MEM_HANDLE_TYPE_FABRIC)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((types & CU_MEM_HANDLE_TYPE_FABRIC) == 0) return CUDA_SUCCESS;
  return machine.fabric_handle_supported != 0 ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult check_properties(const Process& process, const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  const CUmemLocation& location = properties->location;
  if (location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
    return static_cast<CUresult>(not_supported("cuMemCreate of host memory"));
  }
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (location.id < 0 || location.id >= process.node().machine.device_count) return CUDA_ERROR_INVALID_DEVICE;
  if (properties->allocFlags.usage != 0 || properties->allocFlags.compressionType > CU_MEM_ALLOCATION_COMP_GENERIC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return check_handle_types(process.node().machine, static_cast<unsigned>(properties->requestedHandleTypes));
}

Allocation describe(Process& process, const CUmemAllocationProp& properties, std::shared_ptr<PhysicalRange> range) {
  const std::uint64_t size = range->size();
  return {.range = std::move(range),
          .size = size,
          .device = properties.location.id,
          .owner_rank = process.rank,
          .id = process.node().next_allocation_id(),
          .handle_types = static_cast<unsigned>(properties.requestedHandleTypes),
          .rdma_capable = properties.allocFlags.gpuDirectRDMACapable != 0,
          .compressible = properties.allocFlags.compressionType != 0};
}

}  // namespace

extern "C" {

// Measured: the properties do not matter, not even a device that does not exist.
CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags option) {
  return entry(Call::kMemGetAllocationGranularity, Needs::kInit, [&](Process& process) {
    if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *granularity = process.node().machine.allocation_granularity_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                             unsigned long long flags) {
  return entry(Call::kMemCreate, Needs::kInit, [&](Process& process) {
    const std::uint64_t unit = process.node().machine.allocation_granularity_bytes;
    if (handle == nullptr || size == 0 || size % unit != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_properties(process, properties); result != CUDA_SUCCESS) return result;
    std::shared_ptr<PhysicalRange> range = process.node().take_physical(properties->location.id, size);
    if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
    auto allocation = std::make_shared<Allocation>(describe(process, *properties, std::move(range)));
    const unsigned types = allocation->handle_types;
    *handle = process.add_handle({.allocation = std::move(allocation),
                                  .multicast = nullptr,
                                  .handle_types = types,
                                  .birth = process.birth(LedgerKind::kAllocation)});
    return CUDA_SUCCESS;
  });
}

// Measured: one release too many while still mapped is INVALID_VALUE, the memory stays, and retain works again.
CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  return entry(Call::kMemRelease, Needs::kInit, [&](Process& process) {
    const auto found = process.handles.find(handle);
    if (found == process.handles.end() || found->second.references == 0) {
      process.node().incidents.add(process, this_thread().label, "over_release", "cuMemRelease",
                                   "a handle without references is released");
      return CUDA_ERROR_INVALID_VALUE;
    }
    process.release(found);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                        CUmemGenericAllocationHandle handle) {
  return entry(Call::kMemGetAllocationPropertiesFromHandle, Needs::kInit, [&](Process& process) {
    const Handle* const found = process.find_handle(handle);
    if (properties == nullptr || found == nullptr || !found->allocation) return CUDA_ERROR_INVALID_VALUE;
    const Allocation& allocation = *found->allocation;
    *properties = {};
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties->location.id = allocation.device;
    properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(found->handle_types);
    properties->allocFlags.gpuDirectRDMACapable = allocation.rdma_capable ? 1 : 0;
    properties->allocFlags.compressionType = allocation.compressible ? CU_MEM_ALLOCATION_COMP_GENERIC : 0;
    return CUDA_SUCCESS;
  });
}

// Measured: the same handle value with one more reference, from any address inside; INVALID_VALUE for memory of
// cuMemAlloc.
CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return entry(Call::kMemRetainAllocationHandle, Needs::kInit, [&](Process& process) {
    const auto mapping = process.space.mapping_at(reinterpret_cast<CUdeviceptr>(address));
    if (handle == nullptr || mapping == process.space.mappings.end() || mapping->second.origin != Origin::kMapped) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ++process.find_handle(mapping->second.handle)->references;
    *handle = mapping->second.handle;
    return CUDA_SUCCESS;
  });
}

// Measured: a type that was not asked for at creation is INVALID_VALUE, and so is any type for an imported handle.
CUresult CUDAAPI cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags) {
  return entry(Call::kMemExportToShareableHandle, Needs::kInit, [&](Process& process) {
    const Handle* const found = process.find_handle(handle);
    if (shareable == nullptr || found == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || (found->handle_types & static_cast<unsigned>(type)) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int descriptor = process.node().descriptors.add({.allocation = found->allocation,
                                                           .multicast = found->multicast,
                                                           .owner = &process,
                                                           .birth = process.birth(LedgerKind::kDescriptor)});
    if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    *static_cast<int*>(shareable) = descriptor;
    return CUDA_SUCCESS;
  });
}

// Measured: every import is a new handle value of its own; a closed descriptor or a pipe is UNKNOWN; types of Windows
// are NOT_SUPPORTED, no or several types INVALID_VALUE.
CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                                CUmemAllocationHandleType type) {
  return entry(Call::kMemImportFromShareableHandle, Needs::kInit, [&](Process& process) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (type) {
      case CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: break;
      case CU_MEM_HANDLE_TYPE_WIN32:
      case CU_MEM_HANDLE_TYPE_WIN32_KMT: return CUDA_ERROR_NOT_SUPPORTED;
      case CU_MEM_HANDLE_TYPE_FABRIC:
        return static_cast<CUresult>(not_supported("cuMemImportFromShareableHandle of a fabric handle"));
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    const Exported* const found =
        process.node().descriptors.find(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
    if (found == nullptr) return CUDA_ERROR_UNKNOWN;
    if (found->pool) return CUDA_ERROR_NOT_SUPPORTED;  // measured
    const LedgerKind kind = found->multicast ? LedgerKind::kMulticast : LedgerKind::kAllocation;
    *handle = process.add_handle(
        {.allocation = found->allocation, .multicast = found->multicast, .birth = process.birth(kind)});
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
