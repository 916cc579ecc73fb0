// all_reduce and all_gather: which way a call goes, and its launch.
//
// Every call is one round of agreement: arguments, what is wrong with them, and which cached connections hold the
// operands. The way is then a pure function of what all ranks announced, so it is the same everywhere:
//   direct     every operand is connected on every rank: read and written in place
//   multicast  the machine has it, PTX reduces the pair, and the message is long enough
//   scratch    otherwise: through everybody's scratch memory, whatever memory the operands are in
//
// Threads: those of the rank.
#ifndef ALLRANKS_COMMUNICATOR_COLLECTIVES_HPP_
#define ALLRANKS_COMMUNICATOR_COLLECTIVES_HPP_

#include <memory>

#include "channel_cache.hpp"
#include "multicast_group.hpp"

namespace allranks {

enum class Algorithm { kNone, kScratch, kDirect, kMulticast };
const char* name_of(Algorithm algorithm);

// Operands of a collective. `send` and `receive` may be equal (all_reduce), or `send` this rank's part of `receive`
// (all_gather): in place. Otherwise they must not overlap.
struct CollectiveCall {
  CUdeviceptr send = 0;
  CUdeviceptr receive = 0;
  std::uint64_t count = 0;  // elements; of one rank for all_gather
  device::DataType data_type = device::DataType::kFloat32;
  device::Operation operation = device::Operation::kSum;
  CUstream stream = nullptr;
};

class Collectives {
 public:
  Collectives(std::shared_ptr<Core> core, ChannelCache& cache) : core_(std::move(core)), cache_(cache) {}

  // Both collective. Throw on every rank if the call is wrong on one. They enqueue on the stream; what happens later is
  // raised by Core::synchronize.
  void all_reduce(const CollectiveCall& call);
  void all_gather(const CollectiveCall& call);

  Algorithm last_algorithm() const { return last_algorithm_; }
  // Gives the multicast object of the scratch memory back.
  void close() noexcept;

 private:
  // An operand of `bytes`, checked; gives the slots of the cache that hold it.
  SlotMask operand(const char* name, CUdeviceptr address, std::uint64_t bytes, std::uint64_t width) const;
  Algorithm choose(std::uint64_t ordinal, const ChannelCache::Connections& connections, std::uint64_t bytes,
                   bool fabric_can);
  // Makes the multicast object of the scratch memory at the first need. False: there is no room for it on some rank.
  bool have_multicast_scratch(std::uint64_t ordinal);
  // Launches; if that fails here, peers are told and the communicator breaks.
  template <Kernel kernel>
  void launch(const typename KernelArguments<kernel>::Type& arguments, CUstream stream);
  void enqueue_all_reduce(Algorithm algorithm, const CollectiveCall& call,
                          const ChannelCache::Connections& connections);
  void enqueue_all_gather(Algorithm algorithm, const CollectiveCall& call,
                          const ChannelCache::Connections& connections);

  const std::shared_ptr<Core> core_;
  ChannelCache& cache_;
  std::shared_ptr<MulticastGroup> scratch_group_;
  std::shared_ptr<SwitchChannel> scratch_channel_;
  bool multicast_refused_ = false;
  Algorithm last_algorithm_ = Algorithm::kNone;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_COLLECTIVES_HPP_
