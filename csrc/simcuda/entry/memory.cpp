// Plain device memory.
#include "cuda_api.hpp"

using namespace allranks::sim;

extern "C" {

CUresult CUDAAPI cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return entry_in_context(Call::kMemGetInfo, [&](Process& process, const Context& context) {
    const std::uint64_t total = process.node().memory_total(context.device);
    if (total_bytes != nullptr) *total_bytes = process.node().machine.memory_bytes;
    if (free_bytes != nullptr) *free_bytes = total - process.node().memory_used(context.device);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  return entry_in_context(Call::kMemAlloc, [&](Process& process, Context& context) {
    return address == nullptr ? CUDA_ERROR_INVALID_VALUE : process.allocate_plain(context, bytes, address);
  });
}

// Measured: null is SUCCESS and no context is needed, but a current one that was destroyed is an error.
CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
  return entry(Call::kMemFree, Needs::kInit, [&](Process& process) {
    const Context* const context = process.current_context();
    if (context != nullptr && !context->active) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (context != nullptr && context->sticky_error != CUDA_SUCCESS) return context->sticky_error;
    return address == 0 ? CUDA_SUCCESS : process.free_memory(address);
  });
}

// Measured: an address that is reserved and not mapped is NOT_FOUND; an allocation's own base and exact size otherwise.
CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return entry_in_context(Call::kMemGetAddressRange, [&](Process& process, const Context& context) {
    const auto mapping = process.space.mapping_at(address);
    if (mapping == process.space.mappings.end()) return CUDA_ERROR_NOT_FOUND;
    // Measured: memory of any kind that the current context's device has no access to is not found.
    if (!mapping->second.rights.read.test(static_cast<std::size_t>(context.device))) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = mapping->first;
    if (bytes != nullptr) *bytes = mapping->second.size;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
