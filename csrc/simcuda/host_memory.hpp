// The memory of the host program that a driver call names by a pointer: this process's own, or a client's.
//
// Only the contents of copies go through here, and page-locked memory. Arguments and answers of a call are the caller's
// in either case.
// Threads: with the turn held.
#ifndef ALLRANKS_SIMCUDA_HOST_MEMORY_HPP_
#define ALLRANKS_SIMCUDA_HOST_MEMORY_HPP_

#include <cstdint>

namespace allranks::sim {

class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // False when some byte is not there. `to` and `from` on the other side of `source` and `destination` are ours.
  virtual bool read(void* to, const void* source, std::uint64_t size) = 0;
  virtual bool write(void* destination, const void* from, std::uint64_t size) = 0;
  // False when the memory can only be read in the call that names it.
  virtual bool readable_later() const = 0;
  // Pages that the program mapped for the driver are not needed any more.
  virtual void give_back(void* begin, std::uint64_t size) = 0;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_HOST_MEMORY_HPP_
