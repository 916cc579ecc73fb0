#include "device_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace allranks::sim {

namespace {

constexpr std::uint64_t kSpanFactor = 8;
constexpr std::uint64_t kLongestSpan = std::uint64_t{1} << 40;

// Mappings of ended nodes, all zero again, by size. Process-wide because mmap is; 72 devices are kept at most.
class MappingPool {
 public:
  // Null when the host has no such range of addresses.
  unsigned char* take(std::uint64_t size) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<unsigned char*>& kept = by_size_[size];
      if (!kept.empty()) {
        unsigned char* const base = kept.back();
        kept.pop_back();
        --count_;
        return base;
      }
    }
    void* const base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    madvise(base, size, MADV_NOHUGEPAGE);
    madvise(base, size, MADV_DONTDUMP);
    return static_cast<unsigned char*>(base);
  }

  void give(unsigned char* base, std::uint64_t size) {
    {
      const std::lock_guard lock(mutex_);
      if (count_ < kKept) {
        by_size_[size].push_back(base);
        ++count_;
        return;
      }
    }
    munmap(base, size);
  }

 private:
  static constexpr std::size_t kKept = 72;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::vector<unsigned char*>> by_size_;
  std::size_t count_ = 0;
};

MappingPool& pool() {
  static MappingPool instance;
  return instance;
}

}  // namespace

DeviceMemory::DeviceMemory(std::uint64_t size, std::uint64_t granularity) : size_(size / granularity * granularity) {
  span_ = std::max(size_, std::min(size_ * kSpanFactor, kLongestSpan / granularity * granularity));
  base_ = pool().take(span_);
  if (base_ == nullptr) {
    span_ = size_;
    base_ = pool().take(span_);
  }
  if (base_ == nullptr) throw std::bad_alloc();
  free_.emplace(0, span_);
}

DeviceMemory::~DeviceMemory() {
  if (used_ != 0) madvise(base_, span_, MADV_DONTNEED);
  pool().give(base_, span_);
}

std::optional<std::uint64_t> DeviceMemory::take(std::uint64_t size) {
  if (size > size_ - used_) return std::nullopt;
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    if (hole->second < size) continue;
    const auto [offset, available] = *hole;
    free_.erase(hole);
    if (available > size) free_.emplace(offset + size, available - size);
    used_ += size;
    return offset;
  }
  return std::nullopt;
}

void DeviceMemory::give(std::uint64_t offset, std::uint64_t size, bool touched) {
  if (touched) madvise(base_ + offset, size, MADV_DONTNEED);
  used_ -= size;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_.emplace(offset, size);
}

unsigned char* DeviceMemory::at(std::uint64_t offset) const { return base_ + offset; }

std::string DeviceMemory::check_invariants() const {
  std::uint64_t free_bytes = 0;
  std::uint64_t last_end = 0;
  bool first = true;
  for (const auto& [offset, size] : free_) {
    if (!first && offset <= last_end) return "free stretches of device memory touch or overlap";
    first = false;
    last_end = offset + size;
    free_bytes += size;
  }
  if (used_ > size_) return "more device memory is taken than there is";
  return free_bytes + used_ == span_ ? std::string() : "device memory: free and used do not add up";
}

}  // namespace allranks::sim
