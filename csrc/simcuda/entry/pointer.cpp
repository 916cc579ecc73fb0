// Attributes of pointers. Codes and values as measured on H200 with driver 580 (docs/hardware-facts.md), else as cuda.h
// says.
#include "cuda_api.hpp"

#include <algorithm>
#include <string>

#include "../generated.hpp"

using namespace allranks::sim;

namespace {

template <typename Value>
CUresult answer(void* data, Value value) {
  *static_cast<Value*>(data) = value;
  return CUDA_SUCCESS;
}

// Measured: mapped memory has the rights of the current context's device; all others can be read and written, by a
// device without a path to them too.
CUresult access_flags(const Process& process, const Mapping& mapping, void* data) {
  const Context* const context = process.current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (mapping.origin != Origin::kMapped) return answer<int>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
  const auto device = static_cast<std::size_t>(context->device);
  int flags = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
  if (mapping.rights.read.test(device)) flags = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ;
  if (mapping.rights.write.test(device)) flags = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  return answer<int>(data, flags);
}

// [cuda.h] The pool that memory was taken or imported from; null for other memory, and once the pool was destroyed.
CUmemoryPool pool_of(const Process& process, const Mapping& mapping) {
  return mapping.pool ? process.pools.handle_of(*mapping.pool) : nullptr;
}

// Measured: an address that the current context's device may use is its own device pointer.
CUresult device_pointer(const Process& process, const Mapping& mapping, CUdeviceptr address, void* data) {
  const Context* const context = process.current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const bool reached = mapping.rights.read.test(static_cast<std::size_t>(context->device));
  return reached ? answer<CUdeviceptr>(data, address) : CUDA_ERROR_INVALID_VALUE;
}

// Measured: memory of pools belongs to no context, no more than mapped memory does.
CUcontext context_of(const Mapping& mapping) {
  const bool has_one = mapping.context != nullptr && mapping.origin != Origin::kPool;
  return has_one ? mapping.context->handle() : nullptr;
}

// Page-locked memory has the device of the context that it was made in.
int device_of(const Mapping& mapping) {
  if (mapping.origin == Origin::kHost) return mapping.context->device;
  return mapping.allocation ? mapping.allocation->device : mapping.multicast->devices().front();
}

unsigned handle_types(const Process& process, const Mapping& mapping) {
  if (mapping.origin == Origin::kPool) return mapping.pool->properties.handle_types;
  const auto handle = process.handles.find(mapping.handle);
  return handle == process.handles.end() ? 0u : handle->second.handle_types;
}

// The range of an address: its reservation, also where nothing is mapped; memory of cuMemAlloc has its exact size, and
// so has [assumption] memory of pools, imported memory and page-locked memory.
bool range_of(AddressSpace& space, CUdeviceptr address, CUdeviceptr& begin, std::uint64_t& size) {
  const auto mapping = space.mapping_at(address);
  if (mapping != space.mappings.end() && mapping->second.origin != Origin::kMapped) {
    begin = mapping->first;
    size = mapping->second.size;
    return true;
  }
  const auto reservation = space.reservation_at(address);
  if (reservation == space.reservations.end() || reservation->second.internal) return false;
  begin = reservation->first;
  size = reservation->second.size;
  return true;
}

// The mapping of an address: for memory that the driver mapped itself the whole range.
std::pair<CUdeviceptr, std::uint64_t> mapping_of(AddressSpace& space, CUdeviceptr begin, const Mapping& mapping) {
  if (mapping.origin == Origin::kMapped || mapping.origin == Origin::kHost) return {begin, mapping.size};
  const auto reservation = space.reservation_at(begin);
  return {reservation->first, reservation->second.size};
}

CUresult attribute_of(Process& process, void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  AddressSpace& space = process.space;
  const auto found = space.mapping_at(address);
  if (found == space.mappings.end() || found->second.freed) return CUDA_ERROR_INVALID_VALUE;
  const auto& [base, mapping] = *found;
  const bool plain = mapping.origin == Origin::kPlain;
  const bool on_host = mapping.origin == Origin::kHost;
  const int device = device_of(mapping);
  CUdeviceptr range_begin = 0;
  std::uint64_t range_size = 0;
  range_of(space, address, range_begin, range_size);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return answer<CUcontext>(data, context_of(mapping));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return answer<unsigned>(data, on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return device_pointer(process, mapping, address, data);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      answer<CUdeviceptr>(data, on_host ? address : 0);
      return on_host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return answer<int>(data, mapping.sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return answer<unsigned long long>(data, mapping.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return answer<int>(data, 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return answer<int>(data, device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return answer<int>(data, plain ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return answer<CUdeviceptr>(data, range_begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return answer<size_t>(data, range_size);
    case CU_POINTER_ATTRIBUTE_MAPPED: return answer<int>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return answer<unsigned long long>(data, handle_types(process, mapping));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return answer<int>(data, plain || (mapping.allocation && mapping.allocation->rdma_capable) ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return access_flags(process, mapping, data);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return answer<CUmemoryPool>(data, pool_of(process, mapping));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return answer<CUdeviceptr>(data, mapping_of(space, base, mapping).first);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return answer<size_t>(data, mapping_of(space, base, mapping).second);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return static_cast<CUresult>(not_supported("cuPointerGetAttribute of block ids, tokens and decompression"));
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

bool is_wide(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return true;
    default: return false;
  }
}

// What cuPointerGetAttributes says of an address with nothing mapped: zeros, but for the device (-2), the host pointer
// (the address itself, unless it is device memory without one) and the range of a reservation.
void answer_unknown(Process& process, void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  CUdeviceptr begin = 0;
  std::uint64_t size = 0;
  const bool mapped = process.space.mapping_at(address) != process.space.mappings.end();
  const bool reserved = range_of(process.space, address, begin, size);
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
    if (!reserved) return;
    answer<CUdeviceptr>(data, attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? size : begin);
  } else if (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
    answer<CUdeviceptr>(data, mapped ? 0 : address);
  } else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    answer<int>(data, -2);
  } else if (is_wide(attribute)) {
    answer<unsigned long long>(data, 0);
  } else {
    answer<int>(data, 0);
  }
}

}  // namespace

extern "C" {

// Measured: INVALID_VALUE for a host pointer, for an address with nothing mapped, and for an unknown attribute.
CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  return entry(Call::kPointerGetAttribute, Needs::kInit, [&](Process& process) {
    if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(process, data, attribute, address);
  });
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                        CUdeviceptr address) {
  return entry(Call::kPointerGetAttributes, Needs::kInit, [&](Process& process) {
    if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto known = [](CUpointer_attribute attribute) {
      return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT && attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
    };
    if (!std::all_of(attributes, attributes + count, known)) return CUDA_ERROR_INVALID_VALUE;  // measured
    if (std::find(data, data + count, nullptr) != data + count) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
      const CUresult result = attribute_of(process, data[i], attributes[i], address);
      // Measured: what cannot be said without a current context is no error here either.
      const bool unknown = result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_CONTEXT;
      if (unknown) answer_unknown(process, data[i], attributes[i], address);
      if (result != CUDA_SUCCESS && !unknown) return result;
    }
    return CUDA_SUCCESS;
  });
}

// Measured: NOT_SUPPORTED for mapped memory, INVALID_VALUE for a host pointer and for every other attribute.
CUresult CUDAAPI cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  return entry(Call::kPointerSetAttribute, Needs::kInit, [&](Process& process) {
    const auto found = process.space.mapping_at(address);
    if (value == nullptr || found == process.space.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    if (found->second.origin == Origin::kMapped) return CUDA_ERROR_NOT_SUPPORTED;
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
    found->second.sync_memops = *static_cast<const int*>(value) != 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
