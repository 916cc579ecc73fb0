#include "mapped_range.hpp"

#include <utility>

#include "properties.hpp"

namespace allranks {

MappedRange::MappedRange(Cleanup& cleanup, CUdevice device, const std::vector<MappedPiece>& pieces,
                         std::size_t alignment) {
  const Driver& driver = cleanup.driver();
  std::size_t total = 0;
  for (const MappedPiece& piece : pieces) total += piece.size;
  CUdeviceptr base = 0;
  driver.cuMemAddressReserve(&base, total, alignment, 0, 0);
  reservation_ = Reservation(cleanup, {base, total});
  try {
    mappings_.reserve(pieces.size());
    CUdeviceptr at = base;
    for (const MappedPiece& piece : pieces) {
      driver.cuMemMap(at, piece.size, 0, piece.handle, 0);
      mappings_.emplace_back(cleanup, AddressStretch{at, piece.size});
      at += piece.size;
    }
    const CUmemAccessDesc access = read_write_access(device);
    driver.cuMemSetAccess(base, total, &access, 1);
  } catch (...) {
    reset();
    throw;
  }
}

MappedRange& MappedRange::operator=(MappedRange&& other) noexcept {
  if (this != &other) {
    reset();
    reservation_ = std::move(other.reservation_);
    mappings_ = std::move(other.mappings_);
  }
  return *this;
}

bool MappedRange::reset() noexcept {
  bool clean = true;
  for (Mapping& mapping : mappings_) clean = mapping.reset() && clean;
  mappings_.clear();
  // A range that still has something mapped cannot be freed; trying would be one more wrong call.
  if (!clean) reservation_.abandon();
  return reservation_.reset() && clean;
}

}  // namespace allranks
