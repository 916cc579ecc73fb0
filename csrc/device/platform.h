// The machine that device code is written for: blocks of lanes, device addresses, words to signal with, multicast.
//
// One interface, two implementations: on a GPU each member is an instruction or two; on the host it goes through the
// simulated driver's accessors, which translate and check every access. Device code is written once against `Block`:
//
//   index(), count()             this block of the grid, blocks in the grid
//   lane(), lane_count()         this lane of the block; code is right for any number of lanes
//   sync()                       all lanes of the block meet; what was written before is seen by them after
//   load(tile, from, n)          n elements of T, naturally aligned, n <= the tile's size
//   store(to, tile, n)
//   load_word(a)                 8 bytes, relaxed
//   signal(a, v)                 stores v with release order at system scope: whoever sees v sees what this lane did
//   spin(a, expected, limit)     waits with acquire order until reached(word, expected) or the limit; gives the word
//   multimem_load_reduce(...)    16 or fewer bytes, reduced over the team
//   multimem_store(to, from)     4, 8 or 16 bytes to every member
#ifndef ALLRANKS_DEVICE_PLATFORM_H_
#define ALLRANKS_DEVICE_PLATFORM_H_

#include "layout.h"

#if defined(__CUDACC__)
#define ALLRANKS_DEVICE __device__ inline
#else
#define ALLRANKS_DEVICE inline
#endif

namespace allranks::device {

// Counters only grow and are compared by signed difference; a failed word ends every wait.
ALLRANKS_DEVICE bool failed_word(std::uint64_t seen) { return (seen & kFailedWord) != 0; }
ALLRANKS_DEVICE bool reached(std::uint64_t seen, std::uint64_t expected) {
  return failed_word(seen) || static_cast<std::int64_t>(seen - expected) >= 0;
}

}  // namespace allranks::device

#if defined(__CUDACC__)
#include "platform_gpu.h"
#else
#include "platform_host.h"
#endif

#endif  // ALLRANKS_DEVICE_PLATFORM_H_
