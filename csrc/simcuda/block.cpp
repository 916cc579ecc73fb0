#include "block.hpp"

#include "context.hpp"
#include "incidents.hpp"
#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

BlockGroup::BlockGroup(Context& context, const Label& label, const std::string& kernel, std::uint32_t block,
                       std::uint32_t block_count, std::uint32_t lane_count)
    : context_(context),
      label_(label),
      kernel_(kernel),
      block_(block),
      block_count_(block_count),
      lane_count_(lane_count),
      lanes_left_(lane_count) {}

Turnstile& BlockGroup::turnstile() { return context_.node().turnstile; }

Access BlockGroup::access() const { return {.process = context_.process, .device = context_.device, .label = label_}; }

CUresult BlockGroup::run_lane(std::uint32_t lane, simcuKernelEntry entry, const void* const* parameters) {
  Lane here;
  here.group = this;
  here.view.block_index = block_;
  here.view.block_count = block_count_;
  here.view.lane = lane;
  here.view.lane_count = lane_count_;
  here.view.generation = &context_.process.translation_generation;
  here.view.recording = context_.node().writes.recording() ? 1 : 0;
  here.view.detail = &here;
  install_accessors(here.view);
  CUresult result = CUDA_SUCCESS;
  try {
    entry(&here.view, parameters);
  } catch (const LaneEnded& ended) {
    result = ended.error;
  } catch (...) {
    result = CUDA_ERROR_LAUNCH_FAILED;
  }
  return result;
}

void BlockGroup::fail(CUresult error, const char* kind, const std::string& detail) {
  context_.node().incidents.add(context_.process, label_, kind, "kernel " + kernel_, detail);
  if (context_.sticky_error == CUDA_SUCCESS) context_.sticky_error = error;
  turnstile().notify_all();
  throw LaneEnded{error};
}

void BlockGroup::check_context() const {
  if (context_.sticky_error != CUDA_SUCCESS) throw LaneEnded{context_.sticky_error};
}

void BlockGroup::sync(Lane& lane) {
  if (lane_count_ == 1) return;
  const std::uint64_t round = barrier_round_;
  if (++barrier_arrived_ == lane_count_) {
    barrier_arrived_ = 0;
    ++barrier_round_;
    turnstile().notify(this);
    return;
  }
  const WaitSpec spec{.ready = [&] { return barrier_round_ != round || context_.sticky_error != CUDA_SUCCESS; },
                      .key = this,
                      .call = "block barrier",
                      .object = "kernel " + kernel_ + " lane " + std::to_string(lane.view.lane)};
  if (turnstile().wait(spec) != WaitResult::kReady) throw LaneEnded{CUDA_ERROR_LAUNCH_TIMEOUT};
  check_context();
}

}  // namespace allranks::sim
