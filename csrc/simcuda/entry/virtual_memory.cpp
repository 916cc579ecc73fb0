// Virtual memory management. Error codes as measured on 2 x H200 with driver 580 (docs/hardware-facts.md), else as
// cuda.h says.
#include "cuda_api.hpp"

#include <algorithm>
#include <string>

using namespace allranks::sim;

namespace {

bool is_device(const Process& process, const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 &&
         location.id < process.node().machine.device_count;
}

// Waits for all work of the process, as unmapping and changing rights do.
CUresult synchronize_process(Process& process) {
  CUresult result = CUDA_SUCCESS;
  for (const Context* context : process.contexts()) {
    if (result == CUDA_SUCCESS) result = context->streams->synchronize_all("cuCtxSynchronize");
  }
  return result;
}

CUresult check_properties(const Process& process, const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device(process, properties->location)) return CUDA_ERROR_INVALID_DEVICE;
  const unsigned types = static_cast<unsigned>(properties->requestedHandleTypes);
  const simcuMachine& machine = process.node().machine;
  if ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
    if (machine.fabric_handle_supported == 0) return CUDA_ERROR_NOT_SUPPORTED;
    // Handles of this kind are not simulated yet, so a machine that permits them is refused all the same.
    return machine.fabric_handle_permitted == 0 ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_NOT_SUPPORTED;
  }
  return (types & ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) == 0 ? CUDA_SUCCESS
                                                                                        : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult map_multicast(Process& process, Mapping& mapping, std::uint64_t size, const std::shared_ptr<MulticastObject>& object) {
  if (size > object->size) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = await_complete(process, *object, "cuMemMap"); result != CUDA_SUCCESS) return result;
  mapping.multicast = object;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                               CUmemAllocationGranularity_flags option) {
  return entry(Call::kMemGetAllocationGranularity, Needs::kInit, [&](Process& process) {
    if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_device(process, properties->location)) return CUDA_ERROR_INVALID_DEVICE;
    *granularity = process.node().machine.allocation_granularity_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr wanted,
                                     unsigned long long flags) {
  return entry(Call::kMemAddressReserve, Needs::kInit, [&](Process& process) {
    const std::uint64_t unit = process.node().machine.allocation_granularity_bytes;
    if (address == nullptr || size == 0 || size % unit != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((alignment & (alignment - 1)) != 0 && alignment != 0) return CUDA_ERROR_INVALID_VALUE;
    const CUdeviceptr found = process.space.find_room(size, std::max<std::uint64_t>(alignment, unit), wanted);
    if (found == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    process.space.reservations.emplace(found,
                                       Reservation{.size = size, .birth = process.birth(LedgerKind::kReservation)});
    *address = found;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t size) {
  return entry(Call::kMemAddressFree, Needs::kInit, [&](Process& process) {
    const auto found = process.space.reservations.find(address);
    if (found == process.space.reservations.end() || found->second.internal || found->second.size != size ||
        process.space.mapped_within(address, size)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    process.space.reservations.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                             unsigned long long flags) {
  return entry(Call::kMemCreate, Needs::kInit, [&](Process& process) {
    const std::uint64_t unit = process.node().machine.allocation_granularity_bytes;
    if (handle == nullptr || size == 0 || size % unit != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_properties(process, properties); result != CUDA_SUCCESS) return result;
    const int device = properties->location.id;
    std::shared_ptr<PhysicalRange> range = process.node().take_physical(device, size);
    if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
    auto allocation = std::make_shared<Allocation>(
        Allocation{.range = std::move(range),
                   .size = size,
                   .device = device,
                   .owner_rank = process.rank,
                   .id = process.node().next_allocation_id(),
                   .handle_types = static_cast<unsigned>(properties->requestedHandleTypes)});
    *handle =
        process.add_handle({.allocation = std::move(allocation), .birth = process.birth(LedgerKind::kAllocation)});
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

CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
  return entry(Call::kMemMap, Needs::kInit, [&](Process& process) {
    const std::uint64_t unit = process.node().machine.allocation_granularity_bytes;
    const Handle* const found = process.find_handle(handle);
    if (found == nullptr || found->references == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (size == 0 || size % unit != 0 || address % unit != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto reservation = process.space.reservation_at(address);
    if (reservation == process.space.reservations.end() || reservation->second.internal ||
        address + size > reservation->first + reservation->second.size) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (process.space.mapped_within(address, size)) return CUDA_ERROR_INVALID_VALUE;
    if (offset != 0) return CUDA_ERROR_NOT_SUPPORTED;
    Mapping mapping{.size = size, .handle = handle};
    if (found->multicast) {
      const CUresult result = map_multicast(process, mapping, size, found->multicast);
      if (result != CUDA_SUCCESS) return result;
    } else {
      if (size > found->allocation->size) return CUDA_ERROR_INVALID_VALUE;
      if (size < found->allocation->size) return CUDA_ERROR_NOT_SUPPORTED;
      mapping.allocation = found->allocation;
    }
    mapping.buffer_id = process.next_buffer_id();
    mapping.birth = process.birth(LedgerKind::kMapping);
    ++process.find_handle(handle)->mappings;
    process.space.mappings.emplace(address, std::move(mapping));
    ++process.translation_generation;
    return CUDA_SUCCESS;
  });
}

// Measured: a part of a mapping is INVALID_VALUE; a reserved range with nothing mapped, and one with two whole
// mappings, are SUCCESS.
CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t size) {
  return entry(Call::kMemUnmap, Needs::kInit, [&](Process& process) {
    AddressSpace& space = process.space;
    const auto reservation = space.reservation_at(address);
    if (size == 0 || reservation == space.reservations.end() || reservation->second.internal ||
        address + size > reservation->first + reservation->second.size) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto first = space.mapping_at(address);
    const auto last = space.mapping_at(address + size - 1);
    if (first != space.mappings.end() && first->first != address) return CUDA_ERROR_INVALID_VALUE;
    if (last != space.mappings.end() && last->first + last->second.size != address + size) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult result = synchronize_process(process); result != CUDA_SUCCESS) return result;
    bool nothing = true;
    for (auto mapping = space.mappings.lower_bound(address);
         mapping != space.mappings.end() && mapping->first < address + size;) {
      nothing = false;
      process.drop_mapping_of(mapping->second.handle);
      mapping = space.mappings.erase(mapping);
    }
    if (nothing) {
      process.node().incidents.add(process, this_thread().label, "unmap_of_nothing", "cuMemUnmap",
                                   "nothing is mapped in the range");
    }
    ++process.translation_generation;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* descriptions, size_t count) {
  return entry(Call::kMemSetAccess, Needs::kInit, [&](Process& process) {
    const std::uint64_t unit = process.node().machine.allocation_granularity_bytes;
    AddressSpace& space = process.space;
    if (descriptions == nullptr || count == 0 || size == 0 || size % unit != 0 || address % unit != 0 ||
        !space.mapped_throughout(address, size)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_device(process, descriptions[i].location)) return CUDA_ERROR_INVALID_DEVICE;
    }
    if (const CUresult result = synchronize_process(process); result != CUDA_SUCCESS) return result;
    for (auto mapping = space.mapping_at(address); mapping != space.mappings.end() && mapping->first < address + size;
         ++mapping) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto device = static_cast<std::size_t>(descriptions[i].location.id);
        mapping->second.rights.read.set(device, (descriptions[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ) != 0);
        mapping->second.rights.write.set(device, descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      }
    }
    ++process.translation_generation;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  return entry(Call::kMemGetAccess, Needs::kInit, [&](Process& process) {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(process, *location)) return CUDA_ERROR_INVALID_DEVICE;
    const auto mapping = process.space.mapping_at(address);
    if (mapping == process.space.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    const auto device = static_cast<std::size_t>(location->id);
    *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (mapping->second.rights.read.test(device)) *flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    if (mapping->second.rights.write.test(device)) *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                        CUmemGenericAllocationHandle handle) {
  return entry(Call::kMemGetAllocationPropertiesFromHandle, Needs::kInit, [&](Process& process) {
    const Handle* const found = process.find_handle(handle);
    if (properties == nullptr || found == nullptr || !found->allocation) return CUDA_ERROR_INVALID_VALUE;
    *properties = {};
    properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties->location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = found->allocation->device};
    properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(found->allocation->handle_types);
    return CUDA_SUCCESS;
  });
}

// Measured: the same handle value with one more reference; INVALID_VALUE for memory of cuMemAlloc.
CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return entry(Call::kMemRetainAllocationHandle, Needs::kInit, [&](Process& process) {
    const auto mapping = process.space.mapping_at(reinterpret_cast<CUdeviceptr>(address));
    if (handle == nullptr || mapping == process.space.mappings.end() || mapping->second.plain) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ++process.find_handle(mapping->second.handle)->references;
    *handle = mapping->second.handle;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags) {
  return entry(Call::kMemExportToShareableHandle, Needs::kInit, [&](Process& process) {
    const Handle* const found = process.find_handle(handle);
    if (shareable == nullptr || found == nullptr || found->references == 0 || flags != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const unsigned types = found->multicast ? found->multicast->handle_types : found->allocation->handle_types;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || (types & static_cast<unsigned>(type)) == 0) {
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

// Measured: every import is a new handle value of its own; a closed descriptor or a pipe is UNKNOWN.
CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                                CUmemAllocationHandleType type) {
  return entry(Call::kMemImportFromShareableHandle, Needs::kInit, [&](Process& process) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    const Exported* const found =
        process.node().descriptors.find(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
    if (found == nullptr) return CUDA_ERROR_UNKNOWN;
    const LedgerKind kind = found->multicast ? LedgerKind::kMulticast : LedgerKind::kAllocation;
    *handle = process.add_handle(
        {.allocation = found->allocation, .multicast = found->multicast, .birth = process.birth(kind)});
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
