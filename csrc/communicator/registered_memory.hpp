// A region of one rank that other ranks can reach: described and exported by its owner, imported and mapped by a peer.
//
// Threads: those of the rank. POSIX file descriptors; ranks of one process see each other's numbers, and the owner
// keeps a descriptor open until every peer has imported it. Source: cuda.h, "Virtual Memory Management".
#ifndef ALLRANKS_COMMUNICATOR_REGISTERED_MEMORY_HPP_
#define ALLRANKS_COMMUNICATOR_REGISTERED_MEMORY_HPP_

#include <vector>

#include "bootstrap.hpp"
#include "mapped_range.hpp"
#include "region.hpp"

namespace allranks {

// What an owner sends, and the descriptors that have to stay open until it is read.
struct ExportedMemory {
  Bytes description;
  std::vector<Descriptor> descriptors;
};

// Exports every allocation of a retained region. Throws UsageError for memory that cannot be exported, DriverError.
ExportedMemory export_region(Cleanup& cleanup, const std::string& name, const Region& region);
// Exports one allocation whole.
ExportedMemory export_allocation(Cleanup& cleanup, AllocationHandle handle, std::size_t size);

class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  // Imports and maps what a peer described. Throws DriverError; nothing is left of it then.
  RegisteredMemory(Cleanup& cleanup, CUdevice device, const Bytes& description);
  // This rank's own memory, which is just where it is.
  RegisteredMemory(CUdeviceptr address, std::uint64_t size) : address_(address), size_(size) {}

  // Where the region begins in this rank's address space; 0 for an empty one.
  CUdeviceptr address() const { return address_; }
  std::uint64_t size() const { return size_; }
  bool reset() noexcept { return range_.reset(); }

 private:
  MappedRange range_;
  CUdeviceptr address_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_REGISTERED_MEMORY_HPP_
