// all_gather, three ways.
#ifndef ALLRANKS_DEVICE_ALL_GATHER_H_
#define ALLRANKS_DEVICE_ALL_GATHER_H_

#include "team_barrier.h"
#include "tiles.h"

namespace allranks::device {

// Each rank puts a round's bytes into its own scratch half; after one barrier everybody reads everybody's.
ALLRANKS_DEVICE void all_gather_scratch(Block& block, const AllGatherArguments& a) {
  const Team& team = a.team;
  const Plan plan = make_plan(a.bytes, 1, block.count(), team.half_bytes);
  const Range mine = part_of(a.bytes, block.index(), block.count(), kUnitBytes);
  TeamBarrier barrier(block, team);
  for (std::uint64_t round = 0; round < plan.rounds; ++round) {
    const std::uint64_t begin = smaller(mine.end, mine.begin + round * plan.stripe);
    const std::uint64_t bytes = smaller(plan.stripe, mine.end - begin);
    const std::uint64_t place = barrier.half_offset() + block.index() * plan.stripe_bytes;
    copy_bytes(block, team.scratch[team.rank] + place, a.send + begin, bytes);
    if (!barrier.enter()) return;
    for (std::uint32_t peer = 0; peer < team.rank_count; ++peer) {
      const Address source = peer == team.rank ? a.send + begin : team.scratch[peer] + place;
      copy_bytes(block, a.receive + peer * a.bytes + begin, source, bytes);
    }
  }
}

// Zero-copy: each rank puts its bytes into everybody's result.
ALLRANKS_DEVICE void all_gather_direct(Block& block, const DirectAllGatherArguments& a) {
  const Team& team = a.team;
  TeamBarrier barrier(block, team);
  if (!barrier.enter()) return;
  const Range mine = part_of(a.bytes, block.index(), block.count(), kUnitBytes);
  for (std::uint32_t i = 0; i < team.rank_count; ++i) {
    // Each rank begins with its neighbour, so that they do not all write to one rank at once.
    const std::uint32_t peer = (team.rank + i) % team.rank_count;
    copy_bytes(block, a.receive[peer] + team.rank * a.bytes + mine.begin, a.send + mine.begin, mine.end - mine.begin);
  }
  barrier.enter();
}

// The fabric copies: each rank stores its bytes into its share of all ranks' half at once.
ALLRANKS_DEVICE void all_gather_multicast(Block& block, const AllGatherArguments& a) {
  const Team& team = a.team;
  const std::uint64_t share = share_of_half(team);
  const Plan plan = make_plan(a.bytes, 1, block.count(), share);
  const Range mine = part_of(a.bytes, block.index(), block.count(), kUnitBytes);
  TeamBarrier barrier(block, team);
  for (std::uint64_t round = 0; round < plan.rounds; ++round) {
    const std::uint64_t begin = smaller(mine.end, mine.begin + round * plan.stripe);
    const std::uint64_t bytes = smaller(plan.stripe, mine.end - begin);
    const std::uint64_t half = barrier.half_offset() + block.index() * plan.stripe_bytes;
    const Address target = team.multicast + half + team.rank * share;
    for (std::uint64_t at = kUnitBytes * block.lane(); at < bytes; at += kUnitBytes * block.lane_count()) {
      alignas(16) unsigned char value[kUnitBytes] = {};
      block.load(value, a.send + begin + at, static_cast<std::uint32_t>(smaller(kUnitBytes, bytes - at)));
      block.multimem_store(target + at, value, kUnitBytes);
    }
    if (!barrier.enter()) return;
    for (std::uint32_t peer = 0; peer < team.rank_count; ++peer) {
      copy_bytes(block, a.receive + peer * a.bytes + begin, team.scratch[team.rank] + half + peer * share, bytes);
    }
  }
}

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_ALL_GATHER_H_
