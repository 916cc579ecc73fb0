// Physical allocations: a stretch of one device's memory, or of page-locked host memory, with an identity.
//
// Whoever needs the memory holds a shared_ptr (a handle, a mapping, a binding, an exported descriptor); the last one
// gives it back. Addresses and handle values are not its business.
#ifndef ALLRANKS_SIMCUDA_ALLOCATION_HPP_
#define ALLRANKS_SIMCUDA_ALLOCATION_HPP_

#include <cstdint>
#include <memory>

#include "device_memory.hpp"
#include "host_memory.hpp"

namespace allranks::sim {

// A stretch of device memory that is given back when its last holder goes.
class PhysicalRange {
 public:
  PhysicalRange(DeviceMemory& memory, std::uint64_t offset, std::uint64_t size)
      : memory_(memory), offset_(offset), size_(size) {}
  ~PhysicalRange() { memory_.give(offset_, size_, touched_); }
  PhysicalRange(const PhysicalRange&) = delete;
  PhysicalRange& operator=(const PhysicalRange&) = delete;

  // Whoever asks may write there.
  unsigned char* host() {
    touched_ = true;
    return memory_.at(offset_);
  }
  std::uint64_t size() const { return size_; }

 private:
  DeviceMemory& memory_;
  const std::uint64_t offset_;
  const std::uint64_t size_;
  bool touched_ = false;
};

// Page-locked memory of the host: made by cuMemHostAlloc, or the program's own and registered.
class HostPages {
 public:
  enum class Origin { kAllocated, kRegistered };
  // Null when the host has no such memory left.
  static std::shared_ptr<HostPages> make(std::uint64_t size, unsigned flags);
  // Memory that is there. `elsewhere`: the other process that it belongs to, where `begin` is no pointer of ours; it
  // has mapped the pages for the driver if they are kAllocated.
  static std::shared_ptr<HostPages> there(HostMemory* elsewhere, void* begin, std::uint64_t size, unsigned flags,
                                          Origin origin);
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  unsigned char* begin() const { return begin_; }
  HostMemory* elsewhere() const { return elsewhere_; }  // null: in this process
  unsigned flags() const { return flags_; }             // as the call that made it got them
  bool registered() const { return origin_ == Origin::kRegistered; }
  // The program has unmapped them itself.
  void abandon() { abandoned_ = true; }

 private:
  HostPages(HostMemory* elsewhere, void* begin, std::uint64_t size, unsigned flags, Origin origin);

  HostMemory* const elsewhere_;
  unsigned char* const begin_;
  const std::uint64_t size_;
  const unsigned flags_;
  const Origin origin_;
  bool abandoned_ = false;
};

struct Allocation {
  std::shared_ptr<PhysicalRange> range;  // null: host memory
  std::shared_ptr<HostPages> pages = nullptr;
  std::uint64_t range_offset = 0;  // small plain allocations share a range
  std::uint64_t size = 0;
  int device = 0;  // -1: host memory
  int owner_rank = 0;
  std::uint32_t id = 0;       // unique in the node, in order of creation
  unsigned handle_types = 0;  // what it may be exported as (CUmemAllocationHandleType bits)
  bool rdma_capable = false;
  bool compressible = false;
  long bindings = 0;  // of multicast objects, each a holder

  // Where its bytes are, in the process that elsewhere() names.
  unsigned char* host() const { return range ? range->host() + range_offset : pages->begin(); }
  HostMemory* elsewhere() const { return pages ? pages->elsewhere() : nullptr; }
};

// True when only bindings hold the memory: every handle, mapping and descriptor is gone.
inline bool freed_but_bound(const std::shared_ptr<Allocation>& allocation) {
  return allocation.use_count() == allocation->bindings;
}

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_ALLOCATION_HPP_
