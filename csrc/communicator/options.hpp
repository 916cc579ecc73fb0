// What a communicator is opened with. Equal on all ranks, apart from the policies' objects.
#ifndef ALLRANKS_COMMUNICATOR_OPTIONS_HPP_
#define ALLRANKS_COMMUNICATOR_OPTIONS_HPP_

#include <cstdint>

#include "policies.hpp"
#include "waiter.hpp"

namespace allranks {

struct Options {
  // Longest wait of one host call or device wait for other ranks. kNoTimeout suits only a world that knows stalls
  // itself.
  std::uint64_t timeout_us = 30'000'000;
  // Scratch memory of a rank; rounded up to the allocation granularity.
  std::uint64_t scratch_bytes = 2ull << 20;
  // Blocks of a collective's kernel; 0: 1 on the simulated driver, 16 on a GPU.
  std::uint32_t block_count = 0;
  // Collectives of at least so many bytes go by multicast where the machine and the instruction table allow it.
  std::uint64_t multicast_threshold_bytes = 64 * 1024;
  // Collectives on connected buffers read and write them in place.
  bool zero_copy = true;
  // Entries of the channel cache, at most device::kMaxSlots.
  std::uint32_t cache_capacity = 32;
  Policies policies;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_OPTIONS_HPP_
