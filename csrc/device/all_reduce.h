// all_reduce, three ways. All add in the order of ranks (multicast: in the fabric's), each element once a rank or once
// in all, so that every rank gets the same bits.
#ifndef ALLRANKS_DEVICE_ALL_REDUCE_H_
#define ALLRANKS_DEVICE_ALL_REDUCE_H_

#include "team_barrier.h"
#include "tiles.h"

namespace allranks::device {

// Each rank puts a round's elements into its own scratch half; after one barrier everybody reads everybody's.
ALLRANKS_DEVICE void all_reduce_scratch(Block& block, const AllReduceArguments& a) {
  const Team& team = a.team;
  const std::uint32_t width = bytes_of(a.data_type);
  const Plan plan = make_plan(a.count, width, block.count(), team.half_bytes);
  const Range mine = part_of(a.count, block.index(), block.count(), kUnitBytes);
  TeamBarrier barrier(block, team);
  for (std::uint64_t round = 0; round < plan.rounds; ++round) {
    const std::uint64_t begin = smaller(mine.end, mine.begin + round * plan.stripe);
    const std::uint64_t count = smaller(plan.stripe, mine.end - begin);
    const std::uint64_t place = barrier.half_offset() + block.index() * plan.stripe_bytes;
    copy_bytes(block, team.scratch[team.rank] + place, a.send + begin * width, count * width);
    if (!barrier.enter()) return;
    reduce_elements(block, a.data_type, a.operation, count, {team.scratch, place, team.rank_count},
                    {&a.receive, begin * width, 1});
  }
}

// Zero-copy: rank r reduces the r-th part of everybody's operand and stores it to everybody's result. In place is
// right, since nobody else touches that part between the barriers.
ALLRANKS_DEVICE void all_reduce_direct(Block& block, const DirectAllReduceArguments& a) {
  const Team& team = a.team;
  const std::uint32_t width = bytes_of(a.data_type);
  TeamBarrier barrier(block, team);
  if (!barrier.enter()) return;
  const Range mine = part_of(a.count, team.rank, team.rank_count, kUnitBytes);
  const Range part = part_of(mine.end - mine.begin, block.index(), block.count(), kUnitBytes);
  const std::uint64_t offset = (mine.begin + part.begin) * width;
  reduce_elements(block, a.data_type, a.operation, part.end - part.begin, {a.send, offset, team.rank_count},
                  {a.receive, offset, team.rank_count});
  barrier.enter();
}

// The fabric reduces: rank r load-reduces the r-th part of a round and stores it to all ranks' other half.
ALLRANKS_DEVICE void all_reduce_multicast(Block& block, const AllReduceArguments& a) {
  const Team& team = a.team;
  const std::uint32_t width = bytes_of(a.data_type);
  const MultimemPair pair = multimem_pair(a.data_type, a.operation);
  const Plan plan = make_plan(a.count, width, block.count(), team.half_bytes);
  const Range mine = part_of(a.count, block.index(), block.count(), kUnitBytes);
  TeamBarrier barrier(block, team);
  for (std::uint64_t round = 0; round < plan.rounds; ++round) {
    const std::uint64_t begin = smaller(mine.end, mine.begin + round * plan.stripe);
    const std::uint64_t bytes = smaller(plan.stripe, mine.end - begin) * width;
    const std::uint64_t stripe = block.index() * plan.stripe_bytes;
    const std::uint64_t operands = barrier.half_offset() + stripe;
    const std::uint64_t results = barrier.half_offset(1) + stripe;
    copy_bytes(block, team.scratch[team.rank] + operands, a.send + begin * width, bytes);
    if (!barrier.enter()) return;
    // Whole units: what lies behind the last element is reduced too and never read.
    const Range units = part_of(divide_up(bytes, kUnitBytes), team.rank, team.rank_count, 1);
    for (std::uint64_t unit = units.begin + block.lane(); unit < units.end; unit += block.lane_count()) {
      alignas(16) unsigned char value[kUnitBytes];
      block.multimem_load_reduce(value, team.multicast + operands + unit * kUnitBytes, pair.type, pair.operation, width,
                                 kUnitBytes);
      block.multimem_store(team.multicast + results + unit * kUnitBytes, value, kUnitBytes);
    }
    if (!barrier.enter()) return;
    copy_bytes(block, a.receive + begin * width, team.scratch[team.rank] + results, bytes);
  }
}

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_ALL_REDUCE_H_
