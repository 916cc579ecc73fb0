// Channels over a connection: what one rank can do to every peer's region by its own loads and stores.
//
// put and get move bytes between local memory and the peer's region, signal and wait order them (a put before a signal
// is seen by who has waited for it), flush waits until everything enqueued so far is done. All are enqueued on a
// stream. Closing gives up this rank's use of the connection, alone; nothing else changes.
//
// Threads: those of the rank.
#ifndef ALLRANKS_COMMUNICATOR_MEMORY_CHANNEL_HPP_
#define ALLRANKS_COMMUNICATOR_MEMORY_CHANNEL_HPP_

#include <memory>

#include "connection.hpp"
#include "core.hpp"

namespace allranks {

// A piece of a peer's region and of local memory. Offsets and sizes in bytes.
struct Transfer {
  std::uint64_t remote_offset = 0;
  CUdeviceptr local_address = 0;
  std::uint64_t size = 0;
};

class MemoryChannels {
 public:
  // `address`: where this rank's own region is now.
  MemoryChannels(std::shared_ptr<Core> core, std::shared_ptr<Connection> connection, CUdeviceptr address);
  ~MemoryChannels() { close(); }
  MemoryChannels(const MemoryChannels&) = delete;
  MemoryChannels& operator=(const MemoryChannels&) = delete;

  // Each throws UsageError for a peer or range that does not exist and after close, DriverError, PeerLost when broken.
  void put(int peer, const Transfer& transfer, CUstream stream);
  void get(int peer, const Transfer& transfer, CUstream stream);
  void signal(int peer, CUstream stream);
  void wait(int peer, CUstream stream);
  void flush(CUstream stream);

  // Where the peer's region is in this rank's address space, and how large it is.
  CUdeviceptr remote_address(int peer) const;
  std::uint64_t remote_size(int peer) const;
  // The connection's number: equal on all ranks, and to that of other channels over the same cached connection.
  std::uint32_t connection_number() const { return connection_->number(); }

  void close() noexcept;

 private:
  void require_open() const;
  void require_peer(int peer) const;
  CUdeviceptr remote(int peer, const Transfer& transfer) const;
  void copy(CUdeviceptr destination, CUdeviceptr source, std::uint64_t size, CUstream stream);

  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Connection> connection_;
  const CUdeviceptr address_;
  bool open_ = true;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_MEMORY_CHANNEL_HPP_
