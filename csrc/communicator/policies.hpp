// Decisions that could be taken otherwise, each behind an interface with one right default.
//
// A policy is how a known mistake is put back on purpose: the suite's corpus replaces one and leaves everything else as
// it is. Policies hold no resources. Threads: a policy is asked by the thread of its rank.
#ifndef ALLRANKS_COMMUNICATOR_POLICIES_HPP_
#define ALLRANKS_COMMUNICATOR_POLICIES_HPP_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace allranks {

// One stretch of an operand that lies in one physical allocation.
struct SegmentIdentity {
  std::uint64_t handle = 0;     // of the allocation, retained while cached; 0: plain memory
  std::uint64_t buffer_id = 0;  // never used twice in a process
  std::uint64_t offset = 0;     // into the allocation
  std::uint64_t size = 0;
};

struct RegionIdentity {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::vector<SegmentIdentity> segments;
};

// Slots of the channel cache, one bit each.
using SlotMask = std::uint64_t;

class ChannelCachePolicy {
 public:
  virtual ~ChannelCachePolicy() = default;
  // What a region is recognised by: its ordered segments, each by (allocation or BUFFER_ID, offset, size).
  virtual std::string key(const RegionIdentity& region) const;
  // Which cached slots the step may use. `mine`: those whose region on this rank is each operand's; `exchange` gives
  // everybody's masks, by rank, and is a collective step. Default: those that every rank has.
  using Exchange = std::function<std::vector<std::vector<SlotMask>>(const std::vector<SlotMask>&)>;
  virtual std::vector<SlotMask> decide(const std::vector<SlotMask>& mine, const Exchange& exchange) const;
};

// Bytes [begin, end) of a multicast object.
struct OffsetRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

class MulticastPolicy {
 public:
  virtual ~MulticastPolicy() = default;
  // Where a new binding of `size` bytes goes, given what any rank has bound; no value: no room. Asked on every rank
  // with the same arguments. Default: the first gap that is large enough.
  virtual std::optional<std::uint64_t> offset_of(const std::vector<OffsetRange>& bound, std::uint64_t size,
                                                 std::uint64_t capacity) const;
  // The address by which a binding is reached. Default: base + offset, since a mapping starts at the object's offset 0.
  virtual std::uint64_t address_of(std::uint64_t base, std::uint64_t offset) const;
};

// Kinds of what is owned and has to be given back.
enum class Resource {
  kPhysicalMemory,
  kReservation,
  kMapping,
  kImportedHandle,
  kRetainedHandle,
  kMulticastObject,
  kMulticastBinding,
  kDescriptor,
  kEvent,
  kModule,
  kContext
};
const char* name_of(Resource resource);

class ReleasePolicy {
 public:
  virtual ~ReleasePolicy() = default;
  // Whether a resource is given back when its owner ends. Default: always.
  virtual bool gives_back(Resource resource) const;
};

struct Policies {
  std::shared_ptr<const ChannelCachePolicy> channel_cache = std::make_shared<ChannelCachePolicy>();
  std::shared_ptr<const MulticastPolicy> multicast = std::make_shared<MulticastPolicy>();
  std::shared_ptr<const ReleasePolicy> release = std::make_shared<ReleasePolicy>();
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_POLICIES_HPP_
