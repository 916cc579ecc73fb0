#include "allocation.hpp"

#include <sys/mman.h>

namespace allranks::sim {

HostPages::HostPages(unsigned char* begin, std::uint64_t size, unsigned flags, bool registered)
    : begin_(begin), size_(size), flags_(flags), registered_(registered) {}

HostPages::~HostPages() {
  if (!registered_) munmap(begin_, size_);
}

std::shared_ptr<HostPages> HostPages::make(std::uint64_t size, unsigned flags) {
  void* const begin = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  return std::shared_ptr<HostPages>(new HostPages(static_cast<unsigned char*>(begin), size, flags, false));
}

std::shared_ptr<HostPages> HostPages::registered(void* begin, std::uint64_t size, unsigned flags) {
  return std::shared_ptr<HostPages>(new HostPages(static_cast<unsigned char*>(begin), size, flags, true));
}

}  // namespace allranks::sim
