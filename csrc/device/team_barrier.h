// Blocks of the same index on all ranks meet.
//
// Protocol: a block stores the barrier's number into its word in every peer's control page, then waits until every
// peer's word in its own page has reached that number. Numbers grow for the life of a communicator and are never reset.
// Memory order: the store releases and the wait acquires, at system scope, after and before all lanes of the block have
// met; what any lane of any rank wrote before the barrier is seen by every lane after it.
// Participants: block b of all ranks; ranks launch the same kernels in the same order with the same grid.
// Reuse: at once. Data written to half (number & 1) before a barrier may be read after it, and overwritten before the
// next but one, since passing the next needs every reader to have come there.
// Time-out: `team.timeout_us` a peer; the block then writes a Report and ends. A word marked as failed ends it too.
// Not guaranteed: anything between blocks of different index.
#ifndef ALLRANKS_DEVICE_TEAM_BARRIER_H_
#define ALLRANKS_DEVICE_TEAM_BARRIER_H_

#include "plan.h"
#include "platform.h"

namespace allranks::device {

ALLRANKS_DEVICE Address barrier_word(Address control, std::uint32_t block, std::uint32_t from) {
  return control + offsetof(Control, barrier) + 8ull * (std::uint64_t{block} * kMaxRanks + from);
}

ALLRANKS_DEVICE void write_report(Block& block, Address report, const Report& what) {
  block.store(report + 8, &what.rank, 4);
  block.store(report, &what.code, 1);
}

class TeamBarrier {
 public:
  ALLRANKS_DEVICE TeamBarrier(Block& block, const Team& team) : block_(block), team_(team), number_(team.epoch) {}

  // Where data for the next barrier (`ahead` 0) or a later one lies in a rank's scratch memory.
  ALLRANKS_DEVICE std::uint64_t half_offset(std::uint64_t ahead = 0) const {
    return kDataOffset + ((number_ + 1 + ahead) & 1) * team_.half_bytes;
  }

  // False: a peer did not come, and the block should end.
  ALLRANKS_DEVICE bool enter() {
    ++number_;
    block_.sync();
    for (std::uint32_t peer = block_.lane(); peer < team_.rank_count; peer += block_.lane_count()) {
      if (peer != team_.rank) block_.signal(barrier_word(team_.scratch[peer], block_.index(), team_.rank), number_);
    }
    for (std::uint32_t peer = block_.lane(); peer < team_.rank_count; peer += block_.lane_count()) {
      if (peer != team_.rank) await(peer);
    }
    block_.sync();
    return block_.load_word(report()) == kReportNothing;
  }

 private:
  ALLRANKS_DEVICE Address report() const { return team_.scratch[team_.rank] + offsetof(Control, report); }

  ALLRANKS_DEVICE void await(std::uint32_t peer) {
    const Address word = barrier_word(team_.scratch[team_.rank], block_.index(), peer);
    const std::uint64_t seen = block_.spin(word, number_, team_.timeout_us, "team barrier");
    if (!failed_word(seen) && reached(seen, number_)) return;
    const Report what{failed_word(seen) ? kReportPeerFailed : kReportTimeout, peer, kPhaseBarrier, number_, seen};
    write_report(block_, report(), what);
  }

  Block& block_;
  const Team& team_;
  std::uint64_t number_;
};

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_TEAM_BARRIER_H_
