// Stream-ordered allocation, and memory of pools between processes. What cuda.h does not say is an [assumption].
#include "cuda_api.hpp"

#include <cstring>

#include "../generated.hpp"
#include "../memory_pool.hpp"

using namespace allranks::sim;

namespace {

// What cuMemPoolExportPointer hands out.
struct SharedPointer {
  static constexpr std::uint64_t kMagic = 0x5f72'7470'6c6f'6f70;
  std::uint64_t magic;
  std::uint32_t pool;
  std::uint32_t allocation;
};
static_assert(sizeof(SharedPointer) <= sizeof(CUmemPoolPtrExportData));

// Measured: no bytes are a null pointer, and no error.
CUresult answer_nothing(CUdeviceptr* address) {
  *address = 0;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream_handle) {
  return entry_on_stream(Call::kMemAllocAsync, stream_handle, [&](Process& process, Stream& stream) {
    if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) return answer_nothing(address);
    PoolTable& pools = process.pools;
    const std::shared_ptr<MemoryPool> pool = pools.find(pools.current_of(stream.context().device))->pool;
    return pool->allocate(stream, bytes, address);
  });
}

// [cuda.h] The pool may be of another device than the stream.
CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool handle,
                                         CUstream stream_handle) {
  return entry_on_stream(Call::kMemAllocFromPoolAsync, stream_handle, [&](Process& process, Stream& stream) {
    const PoolTable::Entry* const found = process.pools.find(handle);
    if (address == nullptr || found == nullptr || found->imported) return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) return answer_nothing(address);
    const std::shared_ptr<MemoryPool> pool = found->pool;  // lives through a wait, whatever becomes of the handle
    return pool->allocate(stream, bytes, address);
  });
}

// Memory of a pool, of this process or imported. Measured: null is none to free. [assumption] An inner pointer and a
// second free are INVALID_VALUE.
CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream stream_handle) {
  return entry_on_stream(Call::kMemFreeAsync, stream_handle, [&](Process& process, Stream& stream) {
    if (address == 0) return CUDA_SUCCESS;
    const auto mapping = process.space.mappings.find(address);
    if (mapping == process.space.mappings.end() || mapping->second.freed) return CUDA_ERROR_INVALID_VALUE;
    if (mapping->second.origin == Origin::kPlain) {
      return static_cast<CUresult>(not_supported("cuMemFreeAsync of memory of cuMemAlloc"));
    }
    return process.free_in_stream(stream, address);
  });
}

CUresult CUDAAPI cuMemPoolExportToShareableHandle(void* shareable, CUmemoryPool handle, CUmemAllocationHandleType type,
                                                  unsigned long long flags) {
  return entry(Call::kMemPoolExportToShareableHandle, Needs::kInit, [&](Process& process) {
    const PoolTable::Entry* const found = process.pools.find(handle);
    if (shareable == nullptr || found == nullptr || found->imported || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((found->pool->properties.handle_types & static_cast<unsigned>(type)) == 0) return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_PERMITTED;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    const int descriptor = process.node().descriptors.add(
        {.pool = found->pool, .owner = &process, .birth = process.birth(LedgerKind::kDescriptor)});
    if (descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    found->pool->exported = true;
    *static_cast<int*>(shareable) = descriptor;
    return CUDA_SUCCESS;
  });
}

// [assumption] What is no exported pool is INVALID_VALUE, and so is a pool whose process has ended.
CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool* pool, void* shareable, CUmemAllocationHandleType type,
                                                    unsigned long long flags) {
  return entry(Call::kMemPoolImportFromShareableHandle, Needs::kInit, [&](Process& process) {
    if (pool == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
      return static_cast<CUresult>(not_supported("cuMemPoolImportFromShareableHandle of a fabric handle"));
    }
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    const Exported* const found =
        process.node().descriptors.find(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
    if (found == nullptr) return CUDA_ERROR_UNKNOWN;  // measured
    if (!found->pool) return CUDA_ERROR_INVALID_VALUE;
    *pool = process.pools.import(found->pool);
    return CUDA_SUCCESS;
  });
}

// Measured: INVALID_VALUE unless the pool was exported before. [assumption] The pointer is where the allocation begins.
CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr address) {
  return entry(Call::kMemPoolExportPointer, Needs::kInit, [&](Process& process) {
    const auto mapping = process.space.mappings.find(address);
    if (data == nullptr || mapping == process.space.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    const Mapping& exported = mapping->second;
    if (exported.origin != Origin::kPool || exported.freed || !exported.pool->exported) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const SharedPointer shared{SharedPointer::kMagic, exported.pool->serial, exported.allocation->id};
    std::memset(data, 0, sizeof *data);
    std::memcpy(data, &shared, sizeof shared);
    return CUDA_SUCCESS;
  });
}

// Each import is a mapping of its own, and freed on its own [assumption].
CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool handle, CUmemPoolPtrExportData* data) {
  return entry_in_context(Call::kMemPoolImportPointer, [&](Process& process, const Context& context) {
    PoolTable::Entry* const found = process.pools.find(handle);
    if (address == nullptr || data == nullptr || found == nullptr || !found->imported) return CUDA_ERROR_INVALID_VALUE;
    SharedPointer shared{};
    std::memcpy(&shared, data, sizeof shared);
    if (shared.magic != SharedPointer::kMagic || shared.pool != found->pool->serial) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Allocation> allocation = found->pool->find(shared.allocation);
    if (!allocation) return CUDA_ERROR_INVALID_VALUE;
    *address = process.map_imported(context, std::move(allocation), found->imported_rights, found->pool);
    return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  });
}

}  // extern "C"
