// Attributes of pointers.
#include "cuda_api.hpp"

#include "../copy.hpp"

using namespace allranks::sim;

namespace {

template <typename T>
CUresult answer(void* data, T value) {
  *static_cast<T*>(data) = value;
  return CUDA_SUCCESS;
}

CUresult attribute_of(Process& process, const AddressSpace& space, void* data, CUpointer_attribute attribute,
                      CUdeviceptr address) {
  const auto found = space.mapping_at(address);
  if (found == space.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [base, mapping] = *found;
  const int device = mapping.allocation ? mapping.allocation->device : mapping.multicast->devices().front();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      const Context* const context = process.context_of(device);
      return answer<CUcontext>(data, mapping.plain && context != nullptr ? context->handle() : nullptr);
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return answer<unsigned>(data, CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return answer<CUdeviceptr>(data, address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return answer<int>(data, mapping.sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return answer<unsigned long long>(data, mapping.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return answer<int>(data, 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return answer<int>(data, device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return answer<int>(data, mapping.plain ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return answer<CUdeviceptr>(data, base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return answer<size_t>(data, mapping.size);
    case CU_POINTER_ATTRIBUTE_MAPPED: return answer<int>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return answer<unsigned long long>(
          data, mapping.allocation ? mapping.allocation->handle_types : mapping.multicast->handle_types);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return answer<CUdeviceptr>(data, base);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return answer<size_t>(data, mapping.size);
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

extern "C" {

// Measured: INVALID_VALUE for a host pointer and for an address with nothing mapped.
CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  return entry(Call::kPointerGetAttribute, Needs::kInit, [&](Process& process) {
    if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(process, process.space, data, attribute, address);
  });
}

// [cuda.h] An address that means nothing to CUDA gets zeros and success.
CUresult CUDAAPI cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                        CUdeviceptr address) {
  return entry(Call::kPointerGetAttributes, Needs::kInit, [&](Process& process) {
    if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
      const CUresult result = attribute_of(process, process.space, data[i], attributes[i], address);
      if (result == CUDA_ERROR_NOT_SUPPORTED) return result;
      if (result == CUDA_ERROR_INVALID_VALUE) {
        *static_cast<unsigned*>(data[i]) =
            attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? static_cast<unsigned>(-2) : 0u;
      }
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  return entry(Call::kPointerSetAttribute, Needs::kInit, [&](Process& process) {
    const auto found = process.space.mapping_at(address);
    if (value == nullptr || found == process.space.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
    found->second.sync_memops = *static_cast<const int*>(value);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
