// Memory pools: making, asking, sharing between devices. What cuda.h does not say is an [assumption].
#include "cuda_api.hpp"

#include <algorithm>

#include "../generated.hpp"
#include "../later_names.hpp"
#include "../memory_pool.hpp"

using namespace allranks::sim;

namespace {

bool is_device(const Process& process, int id) { return id >= 0 && id < process.node().machine.device_count; }

// Calls body(process, entry) for a handle that is a pool.
template <typename Body>
CUresult with_pool(Call call, CUmemoryPool handle, const Body& body) {
  return entry(call, Needs::kInit, [&](Process& process) {
    PoolTable::Entry* const found = process.pools.find(handle);
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : body(process, *found);
  });
}

// Calls body(process) for a device, if the pool or the place for it is given.
template <typename Body>
CUresult with_device(Call call, bool given, CUdevice device, const Body& body) {
  return entry(call, Needs::kInit, [&](Process& process) {
    if (!given) return CUDA_ERROR_INVALID_VALUE;
    return is_device(process, device) ? body(process) : CUDA_ERROR_INVALID_DEVICE;
  });
}

// The device that a location and a type of allocation mean. Pools on the host and managed ones are not simulated.
CUresult device_of(const Process& process, const CUmemLocation* location, CUmemAllocationType type, int* device) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return static_cast<CUresult>(not_supported("managed memory pools"));
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE: *device = location->id; break;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: return static_cast<CUresult>(not_supported("memory pools on the host"));
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return is_device(process, *device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Measured: a pool may have fabric handles where memory of its own must not. [assumption] Its export is refused.
CUresult check_handle_types(const simcuMachine& machine, unsigned types) {
  constexpr unsigned kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if ((types & ~(kDescriptor | CU_MEM_HANDLE_TYPE_FABRIC)) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool fabric = (types & CU_MEM_HANDLE_TYPE_FABRIC) != 0;
  return fabric && machine.fabric_handle_supported == 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult check_properties(const Process& process, const CUmemPoolProps& wanted, int* device) {
  const CUresult result = device_of(process, &wanted.location, wanted.allocType, device);
  if (result != CUDA_SUCCESS) return result;
  // [cuda.h] Zero: attributes of Windows, and what is reserved.
  const bool reserved_is_zero =
      std::all_of(std::begin(wanted.reserved), std::end(wanted.reserved), [](unsigned char byte) { return byte == 0; });
  if (wanted.win32SecurityAttributes != nullptr || !reserved_is_zero) return CUDA_ERROR_INVALID_VALUE;
  if (wanted.usage != 0) return CUDA_ERROR_NOT_SUPPORTED;  // decompression by hardware: the device has none
  return check_handle_types(process.node().machine, static_cast<unsigned>(wanted.handleTypes));
}

CUresult set_current(Process& process, int device, CUmemoryPool handle) {
  const PoolTable::Entry* const found = process.pools.find(handle);
  // [cuda.h] Local to the device, and not imported.
  if (found == nullptr || found->imported || found->pool->properties.device != device) return CUDA_ERROR_INVALID_VALUE;
  process.pools.set_current(device, handle);
  return CUDA_SUCCESS;
}

template <typename Value>
CUresult answer(void* data, Value value) {
  *static_cast<Value*>(data) = value;
  return CUDA_SUCCESS;
}

CUmemAccess_flags flags_of(const Rights& rights, std::size_t device) {
  if (rights.write.test(device)) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return rights.read.test(device) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

// Measured: taking rights from the pool's own device is INVALID_DEVICE. [assumption] So is a device without a path to
// it.
CUresult check_access(const Process& process, const PoolTable::Entry& pool, const CUmemAccessDesc& wanted) {
  if (wanted.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!is_device(process, wanted.location.id)) return CUDA_ERROR_INVALID_DEVICE;  // measured
  const bool own = wanted.location.id == pool.pool->properties.device;
  switch (wanted.flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE: break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  if (own) return wanted.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  return process.node().machine.peer_access != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult get_attribute(const PoolTable::Entry& entry, CUmemPool_attribute attribute, void* value) {
  const MemoryPool& pool = *entry.pool;
  switch (static_cast<int>(attribute)) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return answer<int>(value, pool.reuse.follow_event_dependencies);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: return answer<int>(value, pool.reuse.opportunistic);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: return answer<int>(value, pool.reuse.internal_dependencies);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return answer<cuuint64_t>(value, pool.release_threshold);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return answer<cuuint64_t>(value, pool.reserved());
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return answer<cuuint64_t>(value, pool.reserved_high);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return answer<cuuint64_t>(value, pool.used());
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return answer<cuuint64_t>(value, pool.used_high);
    case later::kPoolAllocationType: return answer<CUmemAllocationType>(value, CU_MEM_ALLOCATION_TYPE_PINNED);
    case later::kPoolExportHandleTypes:  // [cuda.h] none for an imported pool
      return answer<unsigned>(value, entry.imported ? 0 : pool.properties.handle_types);
    case later::kPoolLocationId: return answer<int>(value, pool.properties.device);
    case later::kPoolLocationType: return answer<CUmemLocationType>(value, CU_MEM_LOCATION_TYPE_DEVICE);
    case later::kPoolMaximumSize: return answer<cuuint64_t>(value, pool.properties.max_bytes);
    case later::kPoolHardwareDecompression: return answer<int>(value, 0);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// Attributes up to this one came with CUDA 11, the others [assumption] with 13.1.
bool known_to(const simcuMachine& machine, CUmemPool_attribute attribute) {
  return attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH || machine.driver_version >= 13010;
}

CUresult set_attribute(MemoryPool& pool, CUmemPool_attribute attribute, const void* value) {
  const auto flag = [&] { return *static_cast<const int*>(value) != 0; };
  const auto bytes = [&] { return *static_cast<const cuuint64_t*>(value); };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: pool.reuse.follow_event_dependencies = flag(); break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: pool.reuse.opportunistic = flag(); break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: pool.reuse.internal_dependencies = flag(); break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool.release_threshold = bytes(); break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (bytes() != 0) return CUDA_ERROR_INVALID_VALUE;
      pool.reserved_high = pool.reserved();
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (bytes() != 0) return CUDA_ERROR_INVALID_VALUE;
      pool.used_high = pool.used();
      break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return with_device(Call::kDeviceGetDefaultMemPool, pool != nullptr, device, [&](Process& process) {
    *pool = process.pools.default_of(device);
    return CUDA_SUCCESS;
  });
}

// Measured: a device that there is not is INVALID_VALUE here and below, as one that is not the pool's.
CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return entry(Call::kDeviceGetMemPool, Needs::kInit, [&](Process& process) {
    if (pool == nullptr || !is_device(process, device)) return CUDA_ERROR_INVALID_VALUE;
    *pool = process.pools.current_of(device);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return entry(Call::kDeviceSetMemPool, Needs::kInit,
               [&](Process& process) { return set_current(process, device, pool); });
}

CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return entry(Call::kMemGetDefaultMemPool, Needs::kInit, [&](Process& process) {
    int device = 0;
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = device_of(process, location, type, &device);
    if (result == CUDA_SUCCESS) *pool = process.pools.default_of(device);
    return result;
  });
}

CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  return entry(Call::kMemGetMemPool, Needs::kInit, [&](Process& process) {
    int device = 0;
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = device_of(process, location, type, &device);
    if (result == CUDA_SUCCESS) *pool = process.pools.current_of(device);
    return result;
  });
}

CUresult CUDAAPI cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  return entry(Call::kMemSetMemPool, Needs::kInit, [&](Process& process) {
    int device = 0;
    const CUresult result = device_of(process, location, type, &device);
    return result == CUDA_SUCCESS ? set_current(process, device, pool) : result;
  });
}

// [cuda.h] The limit may be rounded up.
CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* wanted) {
  return entry(Call::kMemPoolCreate, Needs::kInit, [&](Process& process) {
    if (pool == nullptr || wanted == nullptr) return CUDA_ERROR_INVALID_VALUE;
    int device = 0;
    const CUresult result = check_properties(process, *wanted, &device);
    if (result != CUDA_SUCCESS) return result;
    const std::uint64_t unit = process.node().machine.allocation_granularity_bytes;
    const std::uint64_t limit = std::min<std::uint64_t>(wanted->maxSize, process.node().machine.memory_bytes);
    *pool = process.pools.create({.device = device,
                                  .handle_types = static_cast<unsigned>(wanted->handleTypes),
                                  .max_bytes = (limit + unit - 1) / unit * unit});
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
  return with_pool(Call::kMemPoolDestroy, pool, [&](Process& process, const PoolTable::Entry& found) {
    if (found.pool->properties.is_default && !found.imported) return CUDA_ERROR_INVALID_VALUE;
    process.pools.destroy(pool);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return with_pool(Call::kMemPoolGetAttribute, pool, [&](const Process& process, const PoolTable::Entry& found) {
    if (value == nullptr || !known_to(process.node().machine, attribute)) return CUDA_ERROR_INVALID_VALUE;
    return get_attribute(found, attribute, value);
  });
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return with_pool(Call::kMemPoolSetAttribute, pool, [&](const Process&, const PoolTable::Entry& found) {
    if (value == nullptr || found.imported) return CUDA_ERROR_INVALID_VALUE;
    return set_attribute(*found.pool, attribute, value);
  });
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  return with_pool(Call::kMemPoolTrimTo, pool, [&](const Process&, const PoolTable::Entry& found) {
    if (found.imported) return CUDA_ERROR_INVALID_VALUE;
    found.pool->shrink_to(keep);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* wanted, size_t count) {
  return with_pool(Call::kMemPoolSetAccess, pool, [&](Process& process, PoolTable::Entry& found) {
    if (wanted == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (std::size_t i = 0; i < count; ++i) {
      if (const CUresult result = check_access(process, found, wanted[i]); result != CUDA_SUCCESS) return result;
    }
    Rights& rights = found.rights();
    for (std::size_t i = 0; i < count; ++i) {
      const auto device = static_cast<std::size_t>(wanted[i].location.id);
      rights.read.set(device, wanted[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
      rights.write.set(device, wanted[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    process.pools.open_to_rights(found);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  return with_pool(Call::kMemPoolGetAccess, pool, [&](const Process& process, PoolTable::Entry& found) {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (location->type == CU_MEM_LOCATION_TYPE_INVALID) return CUDA_ERROR_INVALID_VALUE;  // measured
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_device(process, location->id)) return CUDA_ERROR_INVALID_VALUE;
    *flags = flags_of(found.rights(), static_cast<std::size_t>(location->id));
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
