// The agreed channel cache: which regions are connected already, decided by all ranks together and never by one alone.
//
// A step asks for its operands with `decide`: each rank announces the slots that hold its operand, in one round, and
// only a slot that holds every rank's operand is a hit. So a step hits on every rank or creates on every rank. Eviction
// happens in such rounds only, by what all ranks announced, so that the same slots are filled everywhere: entries whose
// memory some rank has unmapped, and the least recently used one when a slot is needed; never one that any rank uses.
//
// Threads: those of the rank.
#ifndef ALLRANKS_COMMUNICATOR_CHANNEL_CACHE_HPP_
#define ALLRANKS_COMMUNICATOR_CHANNEL_CACHE_HPP_

#include <array>
#include <memory>
#include <vector>

#include "connection.hpp"
#include "core.hpp"

namespace allranks {

class ChannelCache {
 public:
  explicit ChannelCache(Core& core) : core_(core) {}

  // An operand of a step, looked up.
  struct Operand {
    Region region;
    std::string key;
    SlotMask slots = 0;  // entries that hold it on this rank
  };
  // Throws UsageError, DriverError. Retains the region only when there is something to compare with, or `retain`.
  Operand look_up(Region region, bool retain) const;

  // One round of the step: which connection serves each operand, null for none. `finding`: what this rank found wrong;
  // `slots`: the operands' slots on this rank.
  using Connections = std::vector<std::shared_ptr<Connection>>;
  Connections decide(const Step& step, const Finding& finding, const std::vector<SlotMask>& slots);

  // Collective: connects everybody's operand. Throws on every rank if it fails on one; nothing has changed then.
  std::shared_ptr<Connection> create(Step step, const std::string& name, Operand operand);

  bool empty() const { return entry_count() == 0; }
  std::size_t entry_count() const;
  void clear() noexcept;

 private:
  // What each rank says of its slots in a round.
  struct Masks {
    SlotMask in_use = 0;
    SlotMask dead = 0;
  };
  Masks masks() const;
  void evict(SlotMask slots);
  // The slot for a new entry: a free one, or that of the entry to evict for it. Throws UsageError when all are in use.
  std::uint32_t choose_slot(SlotMask in_use) const;

  Core& core_;
  std::array<std::shared_ptr<Connection>, device::kMaxSlots> slots_;
  std::array<std::uint64_t, device::kMaxSlots> last_used_{};
  std::uint64_t uses_ = 0;
  std::uint32_t created_ = 0;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_CHANNEL_CACHE_HPP_
