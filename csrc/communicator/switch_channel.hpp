// What a rank can do through a multicast address: store to every rank's bound region at once, and load the reduction.
//
// store and load_reduce go through this rank's staging memory and end when the device is done. What multimem
// instructions cannot do (pieces of less than 4 bytes at the ends) goes by the copy engine. Dropping the channel
// unbinds this rank's region, alone; unbind is collective.
//
// Threads: those of the rank. Source: PTX ISA, "multimem.ld_reduce, multimem.st, multimem.red".
#ifndef ALLRANKS_COMMUNICATOR_SWITCH_CHANNEL_HPP_
#define ALLRANKS_COMMUNICATOR_SWITCH_CHANNEL_HPP_

#include <memory>

#include "device/types.h"
#include "multicast_group.hpp"

namespace allranks {

// Elements of a bound region to reduce. The offset is in bytes, a multiple of the element's size.
struct LoadReduce {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  device::DataType data_type = device::DataType::kInt32;
  device::Operation operation = device::Operation::kSum;
};

class SwitchChannel {
 public:
  SwitchChannel(std::shared_ptr<Core> core, std::shared_ptr<MulticastGroup> group, std::shared_ptr<BoundRegion> bound,
                CUdeviceptr address)
      : core_(std::move(core)), group_(std::move(group)), bound_(std::move(bound)), address_(address) {}
  ~SwitchChannel();
  SwitchChannel(const SwitchChannel&) = delete;
  SwitchChannel& operator=(const SwitchChannel&) = delete;

  // The multicast address of the region's first byte, and its offset in the object.
  CUdeviceptr address() const { return address_; }
  std::uint64_t offset() const { return bound_->range.begin + bound_->lead; }
  std::uint64_t size() const { return bound_->region.size(); }
  bool bound() const { return bound_->alive(); }

  // Both throw UsageError for a range outside the region and after unbind, DriverError, PeerLost when broken;
  // load_reduce also UsageError for a pair of type and operation that PTX does not have.
  void store(std::uint64_t offset, const Bytes& bytes, CUstream stream);
  Bytes load_reduce(const LoadReduce& what, CUstream stream);

  // Collective; idempotent.
  void unbind();

 private:
  void require(std::uint64_t offset, std::uint64_t size) const;
  // Work that is over on return, also when it fails: nothing of it may be under way when the region is unbound.
  template <typename Work>
  auto at_once(CUstream stream, Work&& work) {
    return core_->local([&] {
      try {
        return work();
      } catch (...) {
        core_->driver().cuStreamSynchronize.raw(stream);
        throw;
      }
    });
  }
  void store_words(CUdeviceptr to, const char* bytes, std::uint64_t size, CUstream stream);
  Bytes reduce_piece(CUdeviceptr from, std::uint64_t size, const LoadReduce& what, CUstream stream);

  const std::shared_ptr<Core> core_;
  const std::shared_ptr<MulticastGroup> group_;
  const std::shared_ptr<BoundRegion> bound_;
  const CUdeviceptr address_;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_SWITCH_CHANNEL_HPP_
