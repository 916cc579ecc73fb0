// Multicast. Not run on hardware: docs/multicast.md names the source of each rule.
#include "cuda_api.hpp"

#include <algorithm>

using namespace allranks::sim;

namespace {

// [assumption] As measured for allocations, a handle value can be used while it has references or mappings.
MulticastObject* object_of(Process& process, CUmemGenericAllocationHandle handle) {
  const Handle* const found = process.find_handle(handle);
  return found != nullptr ? found->multicast.get() : nullptr;
}

bool supported(const Process& process) { return process.node().machine.multicast_supported != 0; }

bool on_granularity(const Process& process, std::uint64_t value) {
  return value % process.node().machine.multicast_granularity_minimum_bytes == 0;
}

// What both ways of binding have in common; `allocation` may be null when the caller found none.
CUresult bind_memory(Process& process, CUmemGenericAllocationHandle handle, std::uint64_t offset,
                     const std::shared_ptr<Allocation>& allocation, std::uint64_t allocation_offset, std::uint64_t size,
                     unsigned long long flags, const char* call) {
  if (!supported(process)) return CUDA_ERROR_NOT_SUPPORTED;
  const Handle* const found = process.find_handle(handle);
  if (found == nullptr || !found->multicast || !allocation || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::shared_ptr<MulticastObject> object = found->multicast;
  // [cuda.h] Offsets and size are multiples of the minimum granularity and lie inside.
  if (size == 0 || !on_granularity(process, offset) || !on_granularity(process, allocation_offset) ||
      !on_granularity(process, size) || size > object->size || offset > object->size - size ||
      size > allocation->size || allocation_offset > allocation->size - size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // [cuda.h] A shareable or imported object takes shareable memory only.
  if (object->handle_types != 0 && allocation->handle_types == 0) return CUDA_ERROR_INVALID_VALUE;
  // [cuda.h, use] Binding waits until all devices are there.
  if (const CUresult result = await_complete(process, *object, call); result != CUDA_SUCCESS) return result;
  // [cuda.h] The memory lies on a device of the team.
  if (!object->has(allocation->device)) return CUDA_ERROR_INVALID_VALUE;
  return object->bind(allocation->device, offset,
                      {.size = size,
                       .allocation = allocation,
                       .allocation_offset = allocation_offset,
                       .owner = &process,
                       .birth = process.birth(LedgerKind::kBinding)});
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMulticastGetGranularity(size_t* granularity, const CUmulticastObjectProp* properties,
                                           CUmulticastGranularity_flags option) {
  return entry(Call::kMulticastGetGranularity, Needs::kInit, [&](Process& process) {
    if (!supported(process)) return CUDA_ERROR_NOT_SUPPORTED;
    if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const simcuMachine& machine = process.node().machine;
    switch (option) {
      case CU_MULTICAST_GRANULARITY_MINIMUM: *granularity = machine.multicast_granularity_minimum_bytes; break;
      case CU_MULTICAST_GRANULARITY_RECOMMENDED: *granularity = machine.multicast_granularity_recommended_bytes; break;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMulticastCreate(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
  return entry(Call::kMulticastCreate, Needs::kInit, [&](Process& process) {
    if (!supported(process)) return CUDA_ERROR_NOT_SUPPORTED;
    if (handle == nullptr || properties == nullptr || properties->flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const simcuMachine& machine = process.node().machine;
    if (properties->numDevices < 1 || properties->numDevices > static_cast<unsigned>(machine.device_count) ||
        properties->size == 0 || !on_granularity(process, properties->size)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto types = static_cast<unsigned>(properties->handleTypes);
    if ((types & ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) != 0) {
      return (types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && machine.fabric_handle_supported != 0
                 ? CUDA_ERROR_NOT_PERMITTED
                 : CUDA_ERROR_NOT_SUPPORTED;
    }
    std::shared_ptr<MulticastObject> object =
        process.node().create_multicast(properties->size, properties->numDevices, types);
    if (const CUresult result = object->charge_creation(); result != CUDA_SUCCESS) return result;
    *handle = process.add_handle({.allocation = nullptr,
                                  .multicast = std::move(object),
                                  .handle_types = types,
                                  .birth = process.birth(LedgerKind::kMulticast)});
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device) {
  return entry(Call::kMulticastAddDevice, Needs::kInit, [&](Process& process) {
    if (!supported(process)) return CUDA_ERROR_NOT_SUPPORTED;
    if (device < 0 || device >= process.node().machine.device_count) return CUDA_ERROR_INVALID_DEVICE;
    MulticastObject* const object = object_of(process, handle);
    if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = object->add_device(device);
    if (object->complete()) process.node().turnstile.notify(object);
    return result;
  });
}

CUresult CUDAAPI cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                                    CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                                    unsigned long long flags) {
  return entry(Call::kMulticastBindMem, Needs::kInit, [&](Process& process) {
    const Handle* const found = process.find_handle(memory);
    return bind_memory(process, handle, offset, found == nullptr ? nullptr : found->allocation, memory_offset, size,
                       flags, "cuMulticastBindMem");
  });
}

// [use] Memory of cuMemAlloc cannot be bound (NVIDIA/nccl#1584); [assumption] the range lies in one mapping.
CUresult CUDAAPI cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address,
                                     size_t size, unsigned long long flags) {
  return entry(Call::kMulticastBindAddr, Needs::kInit, [&](Process& process) {
    const auto mapping = process.space.mapping_at(address);
    const bool usable = mapping != process.space.mappings.end() && mapping->second.origin == Origin::kMapped;
    return bind_memory(process, handle, offset, usable ? mapping->second.allocation : nullptr,
                       usable ? address - mapping->first : 0, size, flags, "cuMulticastBindAddr");
  });
}

CUresult CUDAAPI cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t size) {
  return entry(Call::kMulticastUnbind, Needs::kInit, [&](Process& process) {
    if (!supported(process)) return CUDA_ERROR_NOT_SUPPORTED;
    MulticastObject* const object = object_of(process, handle);
    if (object == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
    const auto [result, memory_was_freed] = object->unbind(device, offset, size);
    if (memory_was_freed) {
      process.node().incidents.add(process, this_thread().label, "freed_while_bound", "cuMulticastUnbind",
                                   "the memory bound for device " + std::to_string(device) + " was freed before",
                                   "binding_on_free");
    }
    return result;
  });
}

}  // extern "C"
