#include "allocation.hpp"

#include <sys/mman.h>

#include "own_pages.hpp"

namespace allranks::sim {

HostPages::HostPages(HostMemory* elsewhere, void* begin, std::uint64_t size, unsigned flags, Origin origin)
    : elsewhere_(elsewhere), begin_(static_cast<unsigned char*>(begin)), size_(size), flags_(flags), origin_(origin) {}

HostPages::~HostPages() {
  if (registered() || abandoned_) return;
  if (elsewhere_ != nullptr) {
    elsewhere_->give_back(begin_, size_);
  } else {
    munmap(begin_, size_);
  }
}

std::shared_ptr<HostPages> HostPages::make(std::uint64_t size, unsigned flags) {
  void* const begin = own_pages(size);
  return begin == nullptr ? nullptr : there(nullptr, begin, size, flags, Origin::kAllocated);
}

std::shared_ptr<HostPages> HostPages::there(HostMemory* elsewhere, void* begin, std::uint64_t size, unsigned flags,
                                            Origin origin) {
  return std::shared_ptr<HostPages>(new HostPages(elsewhere, begin, size, flags, origin));
}

}  // namespace allranks::sim
