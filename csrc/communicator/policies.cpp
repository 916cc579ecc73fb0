#include "policies.hpp"

#include <algorithm>

namespace allranks {

namespace {

void append(std::string& text, std::uint64_t value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::string ChannelCachePolicy::key(const RegionIdentity& region) const {
  std::string text;
  text.reserve(region.segments.size() * 4 * sizeof(std::uint64_t));
  for (const SegmentIdentity& segment : region.segments) {
    append(text, segment.handle);
    append(text, segment.handle == 0 ? segment.buffer_id : 0);
    append(text, segment.offset);
    append(text, segment.size);
  }
  return text;
}

std::vector<SlotMask> ChannelCachePolicy::decide(const std::vector<SlotMask>& mine, const Exchange& exchange) const {
  std::vector<SlotMask> common(mine.size(), ~SlotMask{0});
  for (const std::vector<SlotMask>& theirs : exchange(mine)) {
    for (std::size_t i = 0; i < common.size(); ++i) common[i] &= theirs[i];
  }
  return common;
}

std::optional<std::uint64_t> MulticastPolicy::offset_of(const std::vector<OffsetRange>& bound, std::uint64_t size,
                                                        std::uint64_t capacity) const {
  std::vector<OffsetRange> ordered = bound;
  std::sort(ordered.begin(), ordered.end(),
            [](const OffsetRange& a, const OffsetRange& b) { return a.begin < b.begin; });
  std::uint64_t at = 0;
  for (const OffsetRange& range : ordered) {
    if (range.begin >= at && range.begin - at >= size) break;
    at = std::max(at, range.end);
  }
  if (at > capacity || capacity - at < size) return std::nullopt;
  return at;
}

std::uint64_t MulticastPolicy::address_of(std::uint64_t base, std::uint64_t offset) const { return base + offset; }

const char* name_of(Resource resource) {
  switch (resource) {
    case Resource::kPhysicalMemory: return "physical_memory";
    case Resource::kReservation: return "reservation";
    case Resource::kMapping: return "mapping";
    case Resource::kImportedHandle: return "imported_handle";
    case Resource::kRetainedHandle: return "retained_handle";
    case Resource::kMulticastObject: return "multicast_object";
    case Resource::kMulticastBinding: return "multicast_binding";
    case Resource::kDescriptor: return "descriptor";
    case Resource::kEvent: return "event";
    case Resource::kModule: return "module";
    case Resource::kContext: return "context";
  }
  return "unknown";
}

bool ReleasePolicy::gives_back(Resource) const { return true; }

}  // namespace allranks
