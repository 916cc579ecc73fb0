#include "collectives.hpp"

#include <algorithm>

#include "device/plan.h"
#include "errors.hpp"
#include "switch_channel.hpp"

namespace allranks {

namespace {

constexpr std::uint64_t kLargestBytes = 1ull << 60;
// The scratch memory's own group; users' groups are numbered from 0.
constexpr std::uint32_t kScratchGroup = UINT32_MAX;

void check_call(const Core& core, const CollectiveCall& call) {
  if (static_cast<std::uint32_t>(call.data_type) >= device::kDataTypeCount) {
    throw UsageError("data_type: there is no such type");
  }
  if (static_cast<std::uint32_t>(call.operation) >= device::kOperationCount) {
    throw UsageError("operation: there is no such operation");
  }
  const std::uint64_t element = device::bytes_of(call.data_type);
  if (call.count > kLargestBytes / element / static_cast<std::uint64_t>(core.rank_count())) {
    throw UsageError("count=" + std::to_string(call.count) + ": too large");
  }
}

// Codes by which a driver says that there is no multicast to be had, rather than that something is wrong.
bool is_refusal(int code) {
  return code == CUDA_ERROR_OUT_OF_MEMORY || code == CUDA_ERROR_NOT_SUPPORTED || code == CUDA_ERROR_NOT_PERMITTED;
}

bool overlap(CUdeviceptr a, std::uint64_t a_bytes, CUdeviceptr b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kNone: return "none";
    case Algorithm::kScratch: return "scratch";
    case Algorithm::kDirect: return "direct";
    case Algorithm::kMulticast: return "multicast";
  }
  return "unknown";
}

SlotMask Collectives::operand(const char* name, CUdeviceptr address, std::uint64_t bytes, std::uint64_t width) const {
  if (bytes > 0 && address % width != 0) {
    throw UsageError(std::string(name) + "=" + place_text(address, bytes) + ": not aligned to its elements of " +
                     std::to_string(width) + " bytes");
  }
  return cache_.look_up(Region(core_->cleanup(), core_->device(), name, address, bytes), false).slots;
}

bool Collectives::have_multicast_scratch(std::uint64_t ordinal) {
  if (scratch_channel_) return true;
  if (multicast_refused_) return false;
  try {
    std::shared_ptr<MulticastGroup> group =
        MulticastGroup::open(core_, ordinal, kScratchGroup, core_->scratch().bytes());
    scratch_channel_ = group->bind(ordinal, core_->scratch().address(), core_->scratch().bytes());
    scratch_group_ = std::move(group);
  } catch (const DriverError& error) {
    // Every rank is here with the same error. Without room for the object, collectives go another way from now on.
    if (!is_refusal(error.code())) throw;
    multicast_refused_ = true;
    return false;
  }
  core_->set_multicast(scratch_channel_->address());
  return true;
}

Algorithm Collectives::choose(std::uint64_t ordinal, const ChannelCache::Connections& connections, std::uint64_t bytes,
                              bool fabric_can) {
  if (core_->rank_count() == 1) return Algorithm::kScratch;
  const bool connected =
      std::all_of(connections.begin(), connections.end(), [](const auto& c) { return c != nullptr; });
  if (connected && core_->options().zero_copy) return Algorithm::kDirect;
  const bool long_enough = bytes >= core_->options().multicast_threshold_bytes;
  if (fabric_can && long_enough && core_->multicast_supported() && have_multicast_scratch(ordinal)) {
    return Algorithm::kMulticast;
  }
  return Algorithm::kScratch;
}

template <Kernel kernel>
void Collectives::launch(const typename KernelArguments<kernel>::Type& arguments, CUstream stream) {
  try {
    core_->launch<kernel>(arguments, core_->block_count(), stream);
  } catch (const Error& error) {
    core_->fail_peers();
    core_->break_down(std::string("rank ") + std::to_string(core_->rank()) + ": " + error.what(), {core_->rank()});
    throw;
  }
}

void Collectives::all_reduce(const CollectiveCall& call) {
  core_->collective([&](std::uint64_t ordinal) {
    const std::uint64_t width = device::bytes_of(call.data_type);
    const Step step{.kind = StepKind::kAllReduce,
                    .data_type = static_cast<std::uint32_t>(call.data_type),
                    .operation = static_cast<std::uint32_t>(call.operation),
                    .count = call.count,
                    .ordinal = ordinal};
    std::vector<SlotMask> slots(2);
    const Finding finding = attempt([&] {
      core_->make_current();
      check_call(*core_, call);
      const std::uint64_t bytes = call.count * width;
      slots[0] = operand("send_address", call.send, bytes, width);
      if (call.receive == call.send) {
        slots[1] = slots[0];
      } else {
        slots[1] = operand("receive_address", call.receive, bytes, width);
        if (overlap(call.send, bytes, call.receive, bytes)) {
          throw UsageError("send_address=" + place_text(call.send, bytes) + ": overlaps receive_address=" +
                           place_text(call.receive, bytes) + ", and is not equal to it");
        }
      }
      core_->prepare(Kernel::all_reduce_scratch);
      core_->prepare(Kernel::all_reduce_direct);
      core_->prepare(Kernel::all_reduce_multicast);
    });
    const ChannelCache::Connections connections = cache_.decide(step, finding, slots);
    last_algorithm_ = Algorithm::kNone;
    if (call.count == 0) return;
    const bool fabric_can = device::multimem_pair(call.data_type, call.operation).exists;
    last_algorithm_ = choose(ordinal, connections, call.count * width, fabric_can);
    enqueue_all_reduce(last_algorithm_, call, connections);
  });
}

void Collectives::enqueue_all_reduce(Algorithm algorithm, const CollectiveCall& call,
                                     const ChannelCache::Connections& connections) {
  const device::Plan plan = device::make_plan(call.count, device::bytes_of(call.data_type), core_->block_count(),
                                              core_->scratch().half_bytes());
  if (algorithm == Algorithm::kDirect) {
    device::DirectAllReduceArguments arguments{.team = core_->team(2),
                                               .count = call.count,
                                               .data_type = call.data_type,
                                               .operation = call.operation,
                                               .send = {},
                                               .receive = {}};
    for (int peer = 0; peer < core_->rank_count(); ++peer) {
      const bool self = peer == core_->rank();
      arguments.send[peer] = self ? call.send : connections[0]->memory(peer).address();
      arguments.receive[peer] = self ? call.receive : connections[1]->memory(peer).address();
    }
    launch<Kernel::all_reduce_direct>(arguments, call.stream);
    return;
  }
  const bool fabric = algorithm == Algorithm::kMulticast;
  const device::AllReduceArguments arguments{.team = core_->team(fabric ? 2 * plan.rounds : plan.rounds),
                                             .send = call.send,
                                             .receive = call.receive,
                                             .count = call.count,
                                             .data_type = call.data_type,
                                             .operation = call.operation};
  if (fabric) {
    launch<Kernel::all_reduce_multicast>(arguments, call.stream);
  } else {
    launch<Kernel::all_reduce_scratch>(arguments, call.stream);
  }
}

void Collectives::all_gather(const CollectiveCall& call) {
  core_->collective([&](std::uint64_t ordinal) {
    const std::uint64_t width = device::bytes_of(call.data_type);
    const std::uint64_t bytes = call.count * width;
    const Step step{.kind = StepKind::kAllGather,
                    .data_type = static_cast<std::uint32_t>(call.data_type),
                    .count = call.count,
                    .ordinal = ordinal};
    std::vector<SlotMask> slots(1);
    const Finding finding = attempt([&] {
      core_->make_current();
      check_call(*core_, call);
      const std::uint64_t total = bytes * static_cast<std::uint64_t>(core_->rank_count());
      operand("send_address", call.send, bytes, width);
      slots[0] = operand("receive_address", call.receive, total, width);
      const CUdeviceptr own_part = call.receive + bytes * static_cast<std::uint64_t>(core_->rank());
      if (call.send != own_part && overlap(call.send, bytes, call.receive, total)) {
        throw UsageError("send_address=" + place_text(call.send, bytes) + ": overlaps receive_address=" +
                         place_text(call.receive, total) + ", and is not this rank's part of it");
      }
      core_->prepare(Kernel::all_gather_scratch);
      core_->prepare(Kernel::all_gather_direct);
      core_->prepare(Kernel::all_gather_multicast);
    });
    const ChannelCache::Connections connections = cache_.decide(step, finding, slots);
    last_algorithm_ = Algorithm::kNone;
    if (bytes == 0) return;
    last_algorithm_ = choose(ordinal, connections, bytes, true);
    enqueue_all_gather(last_algorithm_, call, connections);
  });
}

void Collectives::enqueue_all_gather(Algorithm algorithm, const CollectiveCall& call,
                                     const ChannelCache::Connections& connections) {
  const std::uint64_t bytes = call.count * device::bytes_of(call.data_type);
  if (algorithm == Algorithm::kDirect) {
    device::DirectAllGatherArguments arguments{
        .team = core_->team(2), .send = call.send, .bytes = bytes, .receive = {}};
    for (int peer = 0; peer < core_->rank_count(); ++peer) {
      arguments.receive[peer] = peer == core_->rank() ? call.receive : connections[0]->memory(peer).address();
    }
    launch<Kernel::all_gather_direct>(arguments, call.stream);
    return;
  }
  device::AllGatherArguments arguments{
      .team = core_->team(0), .send = call.send, .receive = call.receive, .bytes = bytes};
  const bool fabric = algorithm == Algorithm::kMulticast;
  const std::uint64_t capacity = fabric ? device::share_of_half(arguments.team) : core_->scratch().half_bytes();
  core_->advance(device::make_plan(bytes, 1, core_->block_count(), capacity).rounds);
  if (fabric) {
    launch<Kernel::all_gather_multicast>(arguments, call.stream);
  } else {
    launch<Kernel::all_gather_scratch>(arguments, call.stream);
  }
}

void Collectives::close() noexcept {
  core_->set_multicast(0);
  scratch_channel_.reset();
  scratch_group_.reset();
}

}  // namespace allranks
