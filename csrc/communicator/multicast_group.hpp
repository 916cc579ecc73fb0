// A multicast object of all ranks, mapped once, with many regions bound to it.
//
// A mapping of a multicast object starts at the object's offset 0, so the object is mapped once and whole, and a region
// bound at an offset is reached at base + offset. Offsets are agreed: at each bind every rank announces what it has
// bound, and the new range is the first gap free on all of them, whatever order ranks bound and unbound in. Dropping a
// channel or a group is something that a rank does alone, and never a collective step; unbind and close are collective.
//
// Threads: those of the rank. Source: cuda.h, "Multicast Object Management"; microsoft/mscclpp#535 for what goes wrong.
#ifndef ALLRANKS_COMMUNICATOR_MULTICAST_GROUP_HPP_
#define ALLRANKS_COMMUNICATOR_MULTICAST_GROUP_HPP_

#include <memory>
#include <vector>

#include "core.hpp"

namespace allranks {

class SwitchChannel;

// A region of this rank, bound at a range of the object. The allocations stay retained while they are bound.
struct BoundRegion {
  OffsetRange range;       // of the object; multiples of the granularity
  std::uint64_t lead = 0;  // from the range's begin to the region's first byte; equal on all ranks
  Region region;
  std::vector<MulticastBinding> parts;

  void reset() noexcept {
    parts.clear();
    region.release();
  }
  bool alive() const { return !parts.empty(); }
};

class MulticastGroup : public std::enable_shared_from_this<MulticastGroup> {
 public:
  // Collective; `number` counts the groups of the communicator. Throws on every rank if it fails on one.
  static std::shared_ptr<MulticastGroup> open(std::shared_ptr<Core> core, std::uint64_t ordinal, std::uint32_t number,
                                              std::uint64_t capacity_bytes);
  ~MulticastGroup();
  MulticastGroup(const MulticastGroup&) = delete;
  MulticastGroup& operator=(const MulticastGroup&) = delete;

  // Collective. Binds everybody's region at one offset. Throws on every rank if it fails on one: no room, memory that
  // cannot be bound, places within the granularity that differ. What was bound before still works.
  std::shared_ptr<SwitchChannel> bind(CUdeviceptr address, std::uint64_t size);
  // The same inside a step that has begun already.
  std::shared_ptr<SwitchChannel> bind(std::uint64_t ordinal, CUdeviceptr address, std::uint64_t size);
  // Collective: gives this rank's binding back. Ranks may name different bindings.
  void unbind(BoundRegion& bound);
  // Collective; idempotent.
  void close();
  // What a rank does alone: unbinds, unmaps, releases.
  void give_back() noexcept;

  std::uint64_t capacity() const { return window_.size(); }
  std::uint64_t granularity() const { return granularity_; }
  CUdeviceptr base() const { return window_.address(); }
  bool is_open() const { return static_cast<bool>(object_); }

 private:
  MulticastGroup(std::shared_ptr<Core> core, std::uint32_t number) : core_(std::move(core)), number_(number) {}
  void create(std::uint64_t capacity_bytes, Bytes& payload, Descriptor& descriptor);
  void join(const std::vector<Bytes>& payloads);
  std::shared_ptr<BoundRegion> prepare(CUdeviceptr address, std::uint64_t size) const;
  std::vector<OffsetRange> bound_ranges() const;
  void place(const Step& step, BoundRegion& bound, const std::vector<Bytes>& payloads) const;
  void bind_parts(BoundRegion& bound);
  Step step_of(StepKind kind, std::uint64_t ordinal) const;

  const std::shared_ptr<Core> core_;
  const std::uint32_t number_;
  std::uint64_t granularity_ = 0;
  std::uint64_t wanted_bytes_ = 0;
  MulticastObject object_;
  MappedRange window_;
  std::vector<std::shared_ptr<BoundRegion>> bound_;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_MULTICAST_GROUP_HPP_
