// A rank's scratch memory, which every peer maps: control page, staging area, two halves for the collectives.
//
// Layout: device/layout.h. Threads: those of the rank.
#ifndef ALLRANKS_COMMUNICATOR_SCRATCH_HPP_
#define ALLRANKS_COMMUNICATOR_SCRATCH_HPP_

#include <vector>

#include "device/layout.h"
#include "registered_memory.hpp"

namespace allranks {

class Scratch {
 public:
  Scratch() = default;
  // Creates and maps this rank's own, with the words of `block_count` blocks cleared. Throws DriverError.
  Scratch(Cleanup& cleanup, CUdevice device, std::uint64_t wanted_bytes, std::uint32_t block_count);

  // Clears the words of a cache slot, before its first use: peers signal into them as soon as they know of it.
  void clear_slot(const Driver& driver, std::uint32_t slot);

  ExportedMemory export_memory(Cleanup& cleanup) const { return export_allocation(cleanup, memory_.get(), bytes()); }
  // Maps everybody's, by rank. Throws DriverError.
  void import_peers(Cleanup& cleanup, CUdevice device, int own_rank, const std::vector<Bytes>& descriptions);

  CUdeviceptr address() const { return own_.address(); }
  std::uint64_t bytes() const { return own_.size(); }
  std::uint64_t half_bytes() const { return (bytes() - device::kDataOffset) / 2 / 4096 * 4096; }
  CUdeviceptr staging() const { return address() + device::kControlBytes; }
  CUdeviceptr report() const { return address() + offsetof(device::Control, report); }
  CUdeviceptr peer(int rank) const { return peers_[static_cast<std::size_t>(rank)].address(); }
  bool slot_cleared(std::uint32_t slot) const { return (cleared_slots_ >> slot & 1) != 0; }
  bool ready() const { return !peers_.empty(); }
  void reset() noexcept;

 private:
  PhysicalMemory memory_;
  MappedRange own_;
  std::vector<RegisteredMemory> peers_;
  std::uint64_t cleared_slots_ = 0;  // one bit each
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_SCRATCH_HPP_
