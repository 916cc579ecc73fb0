#include "communicator.hpp"

#include <exception>
#include <utility>

#include "errors.hpp"

namespace allranks {

Communicator::Communicator(std::shared_ptr<Bootstrap> bootstrap, DriverPointer driver, int device_index,
                           Options options)
    : core_(std::make_shared<Core>(std::move(bootstrap), std::move(driver), device_index, std::move(options))),
      cache_(*core_),
      collectives_(core_, cache_) {}

Communicator::~Communicator() {
  if (core_->closed()) return;
  core_->run_last([this] { give_back(); });
}

std::shared_ptr<MemoryChannels> Communicator::connect(CUdeviceptr address, std::uint64_t size) {
  return core_->collective([&](std::uint64_t ordinal) {
    const Step step{.kind = StepKind::kConnect, .ordinal = ordinal};
    std::optional<ChannelCache::Operand> operand;
    const Finding finding = attempt([&] {
      core_->make_current();
      operand = cache_.look_up(Region(core_->cleanup(), core_->device(), "address", address, size), true);
    });
    std::shared_ptr<Connection> connection = cache_.decide(step, finding, {operand ? operand->slots : 0}).front();
    if (!connection) connection = cache_.create(step, "address", std::move(*operand));
    return std::make_shared<MemoryChannels>(core_, std::move(connection), address);
  });
}

std::shared_ptr<MulticastGroup> Communicator::open_multicast(std::uint64_t capacity_bytes) {
  return core_->collective([&](std::uint64_t ordinal) {
    std::erase_if(groups_, [](const std::weak_ptr<MulticastGroup>& group) { return group.expired(); });
    std::shared_ptr<MulticastGroup> group = MulticastGroup::open(core_, ordinal, group_count_++, capacity_bytes);
    groups_.push_back(group);
    return group;
  });
}

void Communicator::synchronize(CUstream stream) {
  core_->local([&] { core_->synchronize(stream); });
}

// In the order that every driver call accepts: what is bound or mapped before what it is made of.
void Communicator::give_back() noexcept {
  for (const std::weak_ptr<MulticastGroup>& group : groups_) {
    if (const std::shared_ptr<MulticastGroup> alive = group.lock()) alive->give_back();
  }
  groups_.clear();
  collectives_.close();
  cache_.clear();
  core_->close();
}

void Communicator::close() {
  if (core_->closed()) return;
  if (core_->broken()) {
    core_->settle_broken();
    core_->run_last([this] { give_back(); });
    core_->leave();
    core_->raise_failures({});
    return;
  }
  core_->collective([&](std::uint64_t ordinal) {
    Step step{.kind = StepKind::kClose, .ordinal = ordinal};
    // Peers may use this rank's memory until all are here, with their device work done.
    Finding finding = attempt([&] {
      core_->make_current();
      core_->driver().cuCtxSynchronize();
    });
    std::exception_ptr lost;
    try {
      core_->agreement().agree(step, std::nullopt);
    } catch (const PeerLost& error) {
      core_->break_down(error.what(), error.ranks());
      lost = std::current_exception();
      core_->settle_broken();
    }
    give_back();
    if (lost) std::rethrow_exception(lost);
    step.phase = 1;
    if (!finding) finding = attempt([&] { core_->raise_failures({}); });
    try {
      core_->agreement().agree(step, finding);
    } catch (...) {
      core_->leave();
      throw;
    }
    core_->leave();
  });
}

void Communicator::abandon() noexcept {
  if (core_->closed()) return;
  core_->abandon();
  groups_.clear();
  cache_.clear();
  collectives_.close();
}

}  // namespace allranks
