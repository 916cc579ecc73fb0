// What a stretch of device memory that a user names really is: its segments, each in one physical allocation.
//
// An address says nothing: freed and allocated again it is other memory. Physical allocations are recognised by their
// handle, which cannot be given to other memory while it is retained here; plain memory by its BUFFER_ID, which is
// never used twice. Threads: those of the rank. Source: cuda.h; measured behaviour of both on 2 x H200, driver 580.
#ifndef ALLRANKS_COMMUNICATOR_REGION_HPP_
#define ALLRANKS_COMMUNICATOR_REGION_HPP_

#include <string>
#include <vector>

#include "owners.hpp"
#include "policies.hpp"

namespace allranks {

struct RegionSegment {
  CUdeviceptr mapping = 0;        // where the allocation is mapped
  std::size_t mapping_bytes = 0;  // its whole size
  bool plain = false;             // cuMemAlloc, which has no handle to retain or export
  SegmentIdentity identity;
};

class Region {
 public:
  // Looks [address, address + size) up; `name` is the argument's, for messages. Throws UsageError when some byte is no
  // memory of this device; DriverError.
  Region(Cleanup& cleanup, CUdevice device, const std::string& name, CUdeviceptr address, std::uint64_t size);

  // Retains the allocations for as long as this lives, which completes the identity.
  void retain();
  void release() noexcept { retained_.clear(); }

  CUdeviceptr address() const { return identity_.address; }
  std::uint64_t size() const { return identity_.size; }
  const std::vector<RegionSegment>& segments() const { return segments_; }
  const RegionIdentity& identity() const { return identity_; }
  // Whether every allocation can be exported as a POSIX file descriptor. Retained regions only. Throws DriverError.
  bool exportable() const;
  // Whether the same allocations are still mapped where they were; false once the user has unmapped or freed one.
  bool still_mapped() const;

 private:
  Cleanup* cleanup_;
  std::vector<RegionSegment> segments_;
  RegionIdentity identity_;
  std::vector<RetainedHandle> retained_;
};

// "0x2000000 (4096 bytes)".
std::string place_text(CUdeviceptr address, std::uint64_t size);

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_REGION_HPP_
