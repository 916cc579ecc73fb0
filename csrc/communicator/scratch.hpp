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
  // Creates, maps and clears this rank's own. Throws DriverError.
  Scratch(Cleanup& cleanup, CUdevice device, std::uint64_t wanted_bytes);

  ExportedMemory export_memory(Cleanup& cleanup) const { return export_allocation(cleanup, memory_.get(), bytes()); }
  // Maps everybody's, by rank. Throws DriverError.
  void import_peers(Cleanup& cleanup, CUdevice device, int own_rank, const std::vector<Bytes>& descriptions);

  CUdeviceptr address() const { return own_.address(); }
  std::uint64_t bytes() const { return own_.size(); }
  std::uint64_t half_bytes() const { return (bytes() - device::kDataOffset) / 2 / 4096 * 4096; }
  CUdeviceptr staging() const { return address() + device::kControlBytes; }
  CUdeviceptr report() const { return address() + offsetof(device::Control, report); }
  CUdeviceptr peer(int rank) const { return peers_[static_cast<std::size_t>(rank)].address(); }
  bool ready() const { return !peers_.empty(); }
  void reset() noexcept;

 private:
  PhysicalMemory memory_;
  MappedRange own_;
  std::vector<RegisteredMemory> peers_;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_SCRATCH_HPP_
