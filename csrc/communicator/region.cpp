#include "region.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "errors.hpp"

namespace allranks {

namespace {

struct PointerFacts {
  CUdeviceptr base = 0;  // of the mapping, or of the plain allocation
  std::size_t size = 0;
  int device = 0;
  unsigned long long buffer_id = 0;
  bool plain = false;
};

// Measured on H200: for mapped memory the "range" attributes give the reservation and the "mapping" ones the mapping;
// for plain memory it is the "range" that has the allocation's exact size.
PointerFacts facts_of(const Driver& driver, CUdeviceptr address) {
  PointerFacts facts;
  CUdeviceptr range_base = 0;
  std::size_t range_size = 0;
  int legacy_ipc = 0;
  std::array<CUpointer_attribute, 7> attributes = {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
                                                   CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
                                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                   CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  std::array<void*, 7> answers = {&facts.base, &facts.size, &facts.device, &facts.buffer_id,
                                  &range_base, &range_size, &legacy_ipc};
  driver.cuPointerGetAttributes(attributes.size(), attributes.data(), answers.data(), address);
  facts.plain = legacy_ipc != 0;
  if (facts.plain) {
    facts.base = range_base;
    facts.size = range_size;
  }
  return facts;
}

RegionSegment segment_at(const Driver& driver, CUdevice device, const std::string& name, CUdeviceptr at,
                         std::uint64_t size) {
  const PointerFacts facts = facts_of(driver, at);
  // An address that means nothing to the driver gets zeros.
  if (facts.size == 0 || at < facts.base || at - facts.base >= facts.size) {
    throw UsageError(name + "=" + place_text(at, size) + ": no device memory is mapped there");
  }
  if (facts.device != device) {
    throw UsageError(name + "=" + place_text(at, size) + ": memory of device " + std::to_string(facts.device) +
                     ", and the communicator's is " + std::to_string(device));
  }
  const std::uint64_t offset = at - facts.base;
  RegionSegment segment;
  segment.mapping = facts.base;
  segment.mapping_bytes = facts.size;
  segment.plain = facts.plain;
  segment.identity.buffer_id = facts.buffer_id;
  segment.identity.offset = offset;
  segment.identity.size = std::min<std::uint64_t>(size, facts.size - offset);
  return segment;
}

}  // namespace

std::string place_text(CUdeviceptr address, std::uint64_t size) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "0x%llx (%llu bytes)", static_cast<unsigned long long>(address),
                static_cast<unsigned long long>(size));
  return text.data();
}

Region::Region(Cleanup& cleanup, CUdevice device, const std::string& name, CUdeviceptr address, std::uint64_t size)
    : cleanup_(&cleanup) {
  identity_.address = address;
  identity_.size = size;
  if (address + size < address) throw UsageError(name + "=" + place_text(address, size) + ": beyond the last address");
  for (std::uint64_t done = 0; done < size;) {
    segments_.push_back(segment_at(cleanup.driver(), device, name, address + done, size - done));
    identity_.segments.push_back(segments_.back().identity);
    done += segments_.back().identity.size;
  }
}

void Region::retain() {
  if (!retained_.empty()) return;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].plain) continue;
    AllocationHandle handle = 0;
    cleanup_->driver().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(segments_[i].mapping));
    retained_.emplace_back(*cleanup_, handle);
    segments_[i].identity.handle = handle;
    identity_.segments[i].handle = handle;
  }
}

bool Region::exportable() const {
  return std::all_of(segments_.begin(), segments_.end(), [&](const RegionSegment& segment) {
    if (segment.plain) return false;
    CUmemAllocationProp properties{};
    cleanup_->driver().cuMemGetAllocationPropertiesFromHandle(&properties, segment.identity.handle);
    return (properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  });
}

bool Region::still_mapped() const {
  return std::all_of(segments_.begin(), segments_.end(), [&](const RegionSegment& segment) {
    const PointerFacts facts = facts_of(cleanup_->driver(), segment.mapping);
    return facts.size != 0 && facts.buffer_id == segment.identity.buffer_id;
  });
}

}  // namespace allranks
