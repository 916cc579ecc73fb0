// A reserved range of addresses with physical memory, or a multicast object, mapped into it from its beginning.
//
// Gives back in the only order that the driver takes: unmap everything, then free the range. Does not own the handles.
// Threads: those of the rank.
#ifndef ALLRANKS_COMMUNICATOR_MAPPED_RANGE_HPP_
#define ALLRANKS_COMMUNICATOR_MAPPED_RANGE_HPP_

#include <vector>

#include "owners.hpp"

namespace allranks {

struct MappedPiece {
  AllocationHandle handle = 0;
  std::size_t size = 0;  // of the whole allocation: a part cannot be mapped
};

class MappedRange {
 public:
  MappedRange() = default;
  // Maps the pieces one behind the other and lets the device read and write them. Throws DriverError; what was done
  // until then is undone.
  MappedRange(Cleanup& cleanup, CUdevice device, const std::vector<MappedPiece>& pieces, std::size_t alignment = 0);
  MappedRange(MappedRange&&) = default;
  MappedRange& operator=(MappedRange&& other) noexcept;
  ~MappedRange() { reset(); }

  CUdeviceptr address() const { return reservation_.get().address; }
  std::size_t size() const { return reservation_.get().size; }
  explicit operator bool() const { return static_cast<bool>(reservation_); }
  // False: something could not be given back, and was recorded.
  bool reset() noexcept;

 private:
  Reservation reservation_;
  std::vector<Mapping> mappings_;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_MAPPED_RANGE_HPP_
