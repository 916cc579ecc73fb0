// Pages of the calling process, for page-locked host memory: the driver's where it is embedded, a client's otherwise.
//
// Threads: any.
#ifndef ALLRANKS_SIMCUDA_OWN_PAGES_HPP_
#define ALLRANKS_SIMCUDA_OWN_PAGES_HPP_

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace allranks::sim {

// New ones, zeroed; null when the host has no such memory left. Page-locked memory is never more than the host has,
// though the kernel would promise it.
inline void* own_pages(std::uint64_t size) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (size / page > static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES))) return nullptr;
  void* const begin = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return begin == MAP_FAILED ? nullptr : begin;
}

// Whether every page of the range is there.
inline bool is_own_memory(const void* pointer, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  const std::uint64_t begin = address / page * page;
  if (address > UINT64_MAX / 2 || bytes > UINT64_MAX / 4) return false;
  const std::uint64_t end = (address + bytes + page - 1) / page * page;
  // Asked for in pieces: mincore wants a byte a page.
  std::array<unsigned char, 4096> seen{};
  for (std::uint64_t at = begin; at < end; at += seen.size() * page) {
    const std::uint64_t length = std::min<std::uint64_t>(end - at, seen.size() * page);
    if (mincore(reinterpret_cast<void*>(at), length, seen.data()) != 0) return false;
  }
  return true;
}

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_OWN_PAGES_HPP_
