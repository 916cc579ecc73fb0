// Page-locked host memory: made here, or the program's own and registered. It lies at the host's own addresses, which
// are its device addresses too [cuda.h, unified addressing]. What cuda.h does not say is an [assumption].
#include "cuda_api.hpp"

#include "../own_pages.hpp"

using namespace allranks::sim;

namespace {

// False for what no host has: page-locked memory is mapped by its addresses, beside device memory.
bool is_host_range(const void* pointer, std::uint64_t bytes) {
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  return address != 0 && address < kLowestAddress && bytes < kLowestAddress - address;
}

// Pages that lie where page-locked memory was are new ones: the program has unmapped those behind the driver's back.
void forget_what_was_at(Process& process, CUdeviceptr address, std::uint64_t bytes) {
  auto& mappings = process.space.mappings;
  while (process.space.mapped_within(address, bytes)) {
    auto gone = process.space.mapping_at(address);
    if (gone == mappings.end()) gone = mappings.lower_bound(address);
    process.node().incidents.add(process, this_thread().label, "unmapped_while_page_locked",
                                 name_of(this_thread().call),
                                 "page-locked memory at this address was unmapped by the program, not by the driver");
    gone->second.allocation->pages->abandon();
    process.forget_host(gone);
  }
}

CUresult allocate(Process& process, const Context& context, void** pointer, std::uint64_t bytes, unsigned flags) {
  constexpr unsigned kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pointer == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) {  // measured; [assumption] the pointer is null
    *pointer = nullptr;
    return CUDA_SUCCESS;
  }
  std::shared_ptr<HostPages> pages;
  if (process.host == nullptr) {
    pages = HostPages::make(bytes, flags);
  } else if (is_host_range(*pointer, bytes)) {  // a client has made them, if it could
    pages = HostPages::there(process.host, *pointer, bytes, flags, HostPages::Origin::kAllocated);
  }
  if (!pages) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = pages->begin();
  forget_what_was_at(process, reinterpret_cast<CUdeviceptr>(pages->begin()), bytes);
  process.map_host(context, std::move(pages), bytes);
  return CUDA_SUCCESS;
}

// The mapping that begins at the pointer, if it is page-locked memory of the wanted sort; end() otherwise.
auto find(Process& process, const void* pointer, bool registered) {
  auto& mappings = process.space.mappings;
  const auto found = mappings.find(reinterpret_cast<CUdeviceptr>(pointer));
  const bool wanted = found != mappings.end() && found->second.origin == Origin::kHost &&
                      found->second.allocation->pages->registered() == registered;
  return wanted ? found : mappings.end();
}

// The page-locked memory that the pointer lies in; null: none.
const HostPages* pages_at(const Process& process, const void* pointer) {
  const auto found = process.space.mapping_at(reinterpret_cast<CUdeviceptr>(pointer));
  if (found == process.space.mappings.end() || found->second.origin != Origin::kHost) return nullptr;
  return found->second.allocation->pages.get();
}

// Waits for all work of the process and takes the mapping out; other threads may go on meanwhile.
CUresult give_back(Process& process, const void* pointer, bool registered, CUresult unknown) {
  if (find(process, pointer, registered) == process.space.mappings.end()) return unknown;
  if (const CUresult result = synchronize_process(process); result != CUDA_SUCCESS) return result;
  const auto still = find(process, pointer, registered);
  if (still == process.space.mappings.end()) return unknown;
  process.forget_host(still);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return entry_in_context(Call::kMemHostAlloc, [&](Process& process, const Context& context) {
    return allocate(process, context, pointer, bytes, flags);
  });
}

// [cuda.h] As the same with unified addressing: mapped, and portable.
CUresult CUDAAPI cuMemAllocHost(void** pointer, size_t bytes) {
  return entry_in_context(Call::kMemAllocHost, [&](Process& process, const Context& context) {
    return allocate(process, context, pointer, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  });
}

// [use] It waits for the device. [assumption] Null is SUCCESS, as measured of cuMemFree.
CUresult CUDAAPI cuMemFreeHost(void* pointer) {
  return entry_in_context(Call::kMemFreeHost, [&](Process& process, const Context&) {
    return pointer == nullptr ? CUDA_SUCCESS : give_back(process, pointer, false, CUDA_ERROR_INVALID_VALUE);
  });
}

// [cuda.h] Memory that is page-locked already is an error of its own; where the device has no attribute for read-only
// registration, that is NOT_SUPPORTED. Memory for input and output of other hardware is not simulated.
CUresult CUDAAPI cuMemHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return entry_in_context(Call::kMemHostRegister, [&](Process& process, const Context& context) {
    constexpr unsigned kRefused = CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | kRefused;
    if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto address = reinterpret_cast<CUdeviceptr>(pointer);
    // Measured: half of all numbers are no addresses of a program.
    if (address >> 63 != 0) return CUDA_ERROR_NOT_SUPPORTED;
    // A client has looked whether its memory is there, and gives null if not.
    if (!is_host_range(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (process.host == nullptr && !is_own_memory(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & kRefused) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (process.space.mapped_within(address, bytes)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    process.map_host(context, HostPages::there(process.host, pointer, bytes, flags, HostPages::Origin::kRegistered),
                     bytes);
    return CUDA_SUCCESS;
  });
}

// [cuda.h] The pointer is the one that was registered.
CUresult CUDAAPI cuMemHostUnregister(void* pointer) {
  return entry_in_context(Call::kMemHostUnregister, [&](Process& process, const Context&) {
    if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return give_back(process, pointer, true, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  });
}

// [cuda.h] The pointer itself where unified addressing is. [assumption] Also of memory that was not asked to be mapped,
// and of an inner pointer.
CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr* address, void* pointer, unsigned int flags) {
  return entry_in_context(Call::kMemHostGetDevicePointer, [&](const Process& process, const Context&) {
    if (address == nullptr || flags != 0 || pages_at(process, pointer) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *address = reinterpret_cast<CUdeviceptr>(pointer);
    return CUDA_SUCCESS;
  });
}

// [cuda.h] Of memory that the driver allocated; registered memory is none.
CUresult CUDAAPI cuMemHostGetFlags(unsigned int* flags, void* pointer) {
  return entry_in_context(Call::kMemHostGetFlags, [&](const Process& process, const Context&) {
    const HostPages* const pages = pages_at(process, pointer);
    if (flags == nullptr || pages == nullptr || pages->registered()) return CUDA_ERROR_INVALID_VALUE;
    *flags = pages->flags();
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
