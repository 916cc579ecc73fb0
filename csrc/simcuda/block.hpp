// A running block: its lanes, and what host-compiled device code sees of the driver (struct simcuBlock).
//
// Every access is translated, checked and, when asked for, recorded. An access that is not allowed ends the lane,
// makes the context's error sticky, and ends every other lane that runs in the context, as hardware does.
//
// Threads: with the turn held; lanes may move between threads at every wait.
#ifndef ALLRANKS_SIMCUDA_BLOCK_HPP_
#define ALLRANKS_SIMCUDA_BLOCK_HPP_

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "copy.hpp"
#include "include/simcu.h"
#include "thread_state.hpp"

namespace allranks::sim {

struct Context;
class Turnstile;

class BlockGroup {
 public:
  BlockGroup(Context& context, const Label& label, const std::string& kernel, std::uint32_t block,
             std::uint32_t block_count, std::uint32_t lane_count);

  // Runs one lane to its end. The result is what the context gets.
  CUresult run_lane(std::uint32_t lane, simcuKernelEntry entry, const void* const* parameters);
  // True when that was the last one.
  bool lane_ended() { return --lanes_left_ == 0; }

  // One lane as device code sees it.
  struct Lane {
    simcuBlock view{};
    BlockGroup* group = nullptr;
  };

  Context& context() { return context_; }
  Turnstile& turnstile();
  Access access() const;
  const std::string& kernel() const { return kernel_; }
  // Ends the calling lane with the error; never returns.
  [[noreturn]] void fail(CUresult error, const char* kind, const std::string& detail);
  // Ends the calling lane when the context is broken already.
  void check_context() const;
  void sync(Lane& lane);

 private:
  Context& context_;
  const Label label_;
  const std::string& kernel_;
  const std::uint32_t block_;
  const std::uint32_t block_count_;
  const std::uint32_t lane_count_;
  std::uint32_t lanes_left_;
  std::uint32_t barrier_arrived_ = 0;
  std::uint64_t barrier_round_ = 0;
};

// Thrown through device code to end a lane; caught in run_lane.
struct LaneEnded {
  CUresult error;
};

// Fills in the functions that device code calls (accessor.cpp).
void install_accessors(simcuBlock& view);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_BLOCK_HPP_
