#include "memory_channel.hpp"

#include <utility>

#include "errors.hpp"

namespace allranks {

MemoryChannels::MemoryChannels(std::shared_ptr<Core> core, std::shared_ptr<Connection> connection, CUdeviceptr address)
    : core_(std::move(core)), connection_(std::move(connection)), address_(address) {
  connection_->add_user();
}

void MemoryChannels::close() noexcept {
  if (std::exchange(open_, false)) connection_->remove_user();
}

void MemoryChannels::require_open() const {
  core_->require_usable();
  if (!open_ || !connection_->alive()) throw UsageError("the channels are closed", core_->rank());
}

void MemoryChannels::require_peer(int peer) const {
  if (peer < 0 || peer >= core_->rank_count()) {
    throw UsageError("peer=" + std::to_string(peer) + ": ranks are 0 to " + std::to_string(core_->rank_count() - 1),
                     core_->rank());
  }
}

CUdeviceptr MemoryChannels::remote_address(int peer) const {
  require_open();
  require_peer(peer);
  return peer == core_->rank() ? address_ : connection_->memory(peer).address();
}

std::uint64_t MemoryChannels::remote_size(int peer) const {
  require_open();
  require_peer(peer);
  return connection_->memory(peer).size();
}

CUdeviceptr MemoryChannels::remote(int peer, const Transfer& transfer) const {
  const CUdeviceptr base = remote_address(peer);
  const std::uint64_t size = connection_->memory(peer).size();
  if (transfer.remote_offset > size || transfer.size > size - transfer.remote_offset) {
    throw UsageError("offset=" + std::to_string(transfer.remote_offset) + " size=" + std::to_string(transfer.size) +
                         ": beyond the " + std::to_string(size) + " bytes of rank " + std::to_string(peer) +
                         "'s region",
                     core_->rank());
  }
  return base + transfer.remote_offset;
}

void MemoryChannels::copy(CUdeviceptr destination, CUdeviceptr source, std::uint64_t size, CUstream stream) {
  if (size == 0) return;
  core_->local([&] { core_->launch<Kernel::channel_copy>({destination, source, size}, 1, stream); });
}

void MemoryChannels::put(int peer, const Transfer& transfer, CUstream stream) {
  copy(remote(peer, transfer), transfer.local_address, transfer.size, stream);
}

void MemoryChannels::get(int peer, const Transfer& transfer, CUstream stream) {
  copy(transfer.local_address, remote(peer, transfer), transfer.size, stream);
}

void MemoryChannels::signal(int peer, CUstream stream) {
  require_open();
  require_peer(peer);
  core_->local([&] {
    const std::uint64_t word = semaphore_word(core_->scratch().peer(peer), connection_->slot(), core_->rank());
    core_->launch<Kernel::channel_signal>({word, connection_->semaphore(peer).next_signal()}, 1, stream);
    connection_->semaphore(peer).signalled();
  });
}

void MemoryChannels::wait(int peer, CUstream stream) {
  require_open();
  require_peer(peer);
  core_->local([&] {
    const device::WaitArguments arguments{.word = semaphore_word(core_->scratch().address(), connection_->slot(), peer),
                                          .report = core_->scratch().report(),
                                          .expected = connection_->semaphore(peer).next_wait(),
                                          .timeout_us = core_->options().timeout_us,
                                          .peer = static_cast<std::uint64_t>(peer)};
    core_->launch<Kernel::channel_wait>(arguments, 1, stream);
    connection_->semaphore(peer).waited();
  });
}

void MemoryChannels::flush(CUstream stream) {
  require_open();
  core_->local([&] { core_->synchronize(stream); });
}

}  // namespace allranks
