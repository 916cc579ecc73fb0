// Virtual memory management: ranges of addresses, what is mapped there, and who may access it. Error codes as measured
// on H200 with driver 580 (docs/hardware-facts.md), else as cuda.h says.
#include "cuda_api.hpp"

#include <algorithm>

using namespace allranks::sim;

namespace {

bool is_device(const Process& process, int id) { return id >= 0 && id < process.node().machine.device_count; }

// The reservation that holds [address, address + size), made by cuMemAddressReserve.
bool reserved(AddressSpace& space, CUdeviceptr address, std::uint64_t size) {
  const auto found = space.reservation_at(address);
  return found != space.reservations.end() && !found->second.internal &&
         size <= found->second.size - (address - found->first);
}

// Measured order: an address that is in no reservation, then a part of an allocation, more than it has, or an offset
// (NOT_SUPPORTED), then a range that ends after its reservation, and what is mapped there already. Multicast, [cuda.h]:
// the offset is zero, addresses and sizes are multiples of the multicast granularity; [use] any prefix can be mapped.
CUresult check_map(Process& process, CUdeviceptr address, std::uint64_t size, std::uint64_t offset,
                   CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const simcuMachine& machine = process.node().machine;
  const Handle* const found = process.find_handle(handle);
  if (found == nullptr || flags != 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (address % machine.allocation_granularity_bytes != 0 || !reserved(process.space, address, 1)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (offset != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (found->multicast) {
    const std::uint64_t unit = machine.multicast_granularity_minimum_bytes;
    if (address % unit != 0 || size % unit != 0 || size > found->multicast->size) return CUDA_ERROR_INVALID_VALUE;
  } else if (size != found->allocation->size) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const bool room = reserved(process.space, address, size) && !process.space.mapped_within(address, size);
  return room ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void map(Process& process, CUdeviceptr address, std::uint64_t size, CUmemGenericAllocationHandle value) {
  Handle& handle = *process.find_handle(value);
  ++handle.mappings;
  process.space.mappings.emplace(address, Mapping{.size = size,
                                                  .allocation = handle.allocation,
                                                  .multicast = handle.multicast,
                                                  .handle = value,
                                                  .rights = {},
                                                  .buffer_id = process.next_buffer_id(),
                                                  .birth = process.birth(LedgerKind::kMapping)});
  ++process.translation_generation;
}

// True when a mapping begins before the range or ends after it.
bool cuts_a_mapping(AddressSpace& space, CUdeviceptr address, std::uint64_t size) {
  const auto first = space.mapping_at(address);
  const auto last = space.mapping_at(address + size - 1);
  if (first != space.mappings.end() && first->first != address) return true;
  return last != space.mappings.end() && last->first + last->second.size != address + size;
}

CUresult check_access(const Process& process, const CUmemAccessDesc& description) {
  if (description.location.type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;
  if (description.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!is_device(process, description.location.id)) return CUDA_ERROR_INVALID_VALUE;
  switch (description.flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE: return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// [assumption] A device without a path to the memory cannot be given rights: INVALID_DEVICE.
bool reachable(const Process& process, const Mapping& mapping, int device) {
  return process.node().machine.peer_access != 0 || mapping.multicast || mapping.allocation->device == device;
}

}  // namespace

extern "C" {

// Measured: a wanted address that is taken is no error, one off the granularity or the alignment is.
CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr wanted,
                                     unsigned long long flags) {
  return entry(Call::kMemAddressReserve, Needs::kInit, [&](Process& process) {
    const std::uint64_t unit = process.node().machine.allocation_granularity_bytes;
    const std::uint64_t aligned = std::max<std::uint64_t>(alignment, unit);
    if (address == nullptr || size == 0 || size % unit != 0 || flags != 0 || (alignment & (alignment - 1)) != 0 ||
        wanted % aligned != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // Measured: so is a wish where no address can be.
    const bool reachable = wanted <= kHighestAddress && size <= kHighestAddress - wanted;
    if (size > kHighestAddress - kLowestAddress || !reachable) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUdeviceptr found = process.space.find_room(size, aligned, wanted);
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

// A mapping of a multicast object waits until every device has been added. Other threads of the process go on
// meanwhile, so everything is checked again afterwards.
CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
  return entry(Call::kMemMap, Needs::kInit, [&](Process& process) {
    CUresult result = check_map(process, address, size, offset, handle, flags);
    if (result != CUDA_SUCCESS) return result;
    if (const std::shared_ptr<MulticastObject> object = process.find_handle(handle)->multicast) {
      result = await_complete(process, *object, "cuMemMap");
      if (result == CUDA_SUCCESS) result = check_map(process, address, size, offset, handle, flags);
    }
    if (result == CUDA_SUCCESS) map(process, address, size, handle);
    return result;
  });
}

// Measured: a part of a mapping is INVALID_VALUE; a reserved range with nothing mapped, with several whole mappings,
// with holes, and one that ends after its reservation are SUCCESS.
CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t size) {
  return entry(Call::kMemUnmap, Needs::kInit, [&](Process& process) {
    AddressSpace& space = process.space;
    if (size == 0 || !reserved(space, address, 1) || size > kHighestAddress - address ||
        cuts_a_mapping(space, address, size)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult result = synchronize_process(process); result != CUDA_SUCCESS) return result;
    // Other threads went on meanwhile.
    if (cuts_a_mapping(space, address, size)) return CUDA_ERROR_INVALID_VALUE;
    bool nothing = true;
    for (auto mapping = space.mappings.lower_bound(address);
         mapping != space.mappings.end() && mapping->first < address + size;) {
      const auto next = std::next(mapping);
      if (mapping->second.origin == Origin::kMapped) {
        nothing = false;
        const CUmemGenericAllocationHandle handle = mapping->second.handle;
        space.mappings.erase(mapping);
        process.drop_mapping_of(handle);
      }
      mapping = next;
    }
    if (nothing) {
      process.node().incidents.add(process, this_thread().label, "unmap_of_nothing", "cuMemUnmap",
                                   "nothing is mapped in the range");
    }
    ++process.translation_generation;
    return CUDA_SUCCESS;
  });
}

// Measured: a misaligned range, one that begins where nothing is mapped, a device that does not exist and unknown
// flags are INVALID_VALUE, so is a location of no kind; one that is no device is NOT_SUPPORTED; holes between mappings
// are SUCCESS.
CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* descriptions, size_t count) {
  return entry(Call::kMemSetAccess, Needs::kInit, [&](Process& process) {
    const std::uint64_t unit = process.node().machine.allocation_granularity_bytes;
    AddressSpace& space = process.space;
    if (descriptions == nullptr || count == 0 || size == 0 || size % unit != 0 || address % unit != 0 ||
        !reserved(space, address, size) || space.mapping_at(address) == space.mappings.end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto begin = space.mapping_at(address);
    const auto end = space.mappings.lower_bound(address + size);
    for (std::size_t i = 0; i < count; ++i) {
      if (const CUresult result = check_access(process, descriptions[i]); result != CUDA_SUCCESS) return result;
      const int device = descriptions[i].location.id;
      if (!std::all_of(begin, end, [&](const auto& at) { return reachable(process, at.second, device); })) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
    }
    if (const CUresult result = synchronize_process(process); result != CUDA_SUCCESS) return result;
    // Measured: it goes as far as memory is mapped without a hole.
    CUdeviceptr next = space.mapping_at(address)->first;
    for (auto mapping = space.mapping_at(address);
         mapping != space.mappings.end() && mapping->first < address + size && mapping->first == next; ++mapping) {
      next += mapping->second.size;
      for (std::size_t i = 0; i < count; ++i) {
        const auto device = static_cast<std::size_t>(descriptions[i].location.id);
        mapping->second.rights.read.set(device, descriptions[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
        mapping->second.rights.write.set(device, descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      }
    }
    ++process.translation_generation;
    return CUDA_SUCCESS;
  });
}

// Measured: memory of cuMemAlloc is SUCCESS and no rights.
CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  return entry(Call::kMemGetAccess, Needs::kInit, [&](Process& process) {
    // Measured: in this order.
    if (flags == nullptr || location == nullptr || address == 0) return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (location->type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_DEVICE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_device(process, location->id)) return CUDA_ERROR_INVALID_DEVICE;
    const auto mapping = process.space.mapping_at(address);
    const bool mapped = mapping != process.space.mappings.end() && mapping->second.origin != Origin::kHost;
    if (!mapped) return CUDA_ERROR_INVALID_VALUE;
    if (mapping->second.origin == Origin::kPlain) return CUDA_SUCCESS;
    const auto device = static_cast<std::size_t>(location->id);
    if (mapping->second.rights.read.test(device)) *flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    if (mapping->second.rights.write.test(device)) *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
  });
}

// [cuda.h] A DMA-BUF descriptor, where the device attribute says so; here it does not.
CUresult CUDAAPI cuMemGetHandleForAddressRange(void* handle, CUdeviceptr, size_t size, CUmemRangeHandleType type,
                                               unsigned long long) {
  return entry_in_context(Call::kMemGetHandleForAddressRange, [&](Process&, const Context&) {
    if (handle == nullptr || size == 0 || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_ERROR_NOT_SUPPORTED;
  });
}

}  // extern "C"
