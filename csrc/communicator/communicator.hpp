// The reference communicator: one rank's end of a group that moves data by its own loads and stores.
//
// Collective operations succeed on every rank or raise on every rank, with an error that names the rank at fault. After
// a bad argument or a refused resource the communicator is usable as before; after a lost peer, a deadline or a failed
// launch it is broken on all ranks. Destruction without close gives back what this rank has, alone.
//
// Threads: one at a time. Terms as in MSCCL++ and NCCL.
#ifndef ALLRANKS_COMMUNICATOR_COMMUNICATOR_HPP_
#define ALLRANKS_COMMUNICATOR_COMMUNICATOR_HPP_

#include <memory>
#include <vector>

#include "collectives.hpp"
#include "memory_channel.hpp"
#include "multicast_group.hpp"

namespace allranks {

class Communicator {
 public:
  // Collective.
  Communicator(std::shared_ptr<Bootstrap> bootstrap, DriverPointer driver, int device_index, Options options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return core_->rank(); }
  int rank_count() const { return core_->rank_count(); }
  bool multicast_supported() const { return core_->multicast_supported(); }
  bool closed() const { return core_->closed(); }
  bool broken() const { return core_->broken(); }
  std::uint64_t rendezvous_count() const { return core_->bootstrap().rendezvous_count(); }
  std::size_t cached_connections() const { return cache_.entry_count(); }
  Algorithm last_algorithm() const { return collectives_.last_algorithm(); }

  // Collective: everybody's region, reachable by everybody. Hits the agreed cache on every rank or creates on every
  // rank.
  std::shared_ptr<MemoryChannels> connect(CUdeviceptr address, std::uint64_t size);
  // Collective: a multicast object of at least so many bytes.
  std::shared_ptr<MulticastGroup> open_multicast(std::uint64_t capacity_bytes);
  void all_reduce(const CollectiveCall& call) { collectives_.all_reduce(call); }
  void all_gather(const CollectiveCall& call) { collectives_.all_gather(call); }

  // Waits for the stream and raises what went wrong in device work since.
  void synchronize(CUstream stream);

  // Collective; idempotent. Gives everything back on every rank, then raises if some clean-up failed on some rank.
  void close();
  // This rank is gone: forgets everything without a driver call, for when the process's end gives it all back.
  void abandon() noexcept;

 private:
  void give_back() noexcept;

  std::shared_ptr<Core> core_;
  ChannelCache cache_;
  Collectives collectives_;
  std::vector<std::weak_ptr<MulticastGroup>> groups_;
  std::uint32_t group_count_ = 0;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_COMMUNICATOR_HPP_
