// The physical memory of one device: one sparse mapping, and what of it is taken.
//
// A page costs nothing until it is touched, so a device of 141 GB fits on a laptop. A device pages its memory, so what
// is free in pieces is free; the mapping is longer than the device's memory for that reason, and only the bytes taken
// are counted. Mappings are kept for the next node of the same size: nodes come and go with every Program. Memory is
// zero when it is handed out.
// Threads: with the turn held; the pool has a lock of its own.
#ifndef ALLRANKS_SIMCUDA_DEVICE_MEMORY_HPP_
#define ALLRANKS_SIMCUDA_DEVICE_MEMORY_HPP_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace allranks::sim {

class DeviceMemory {
 public:
  DeviceMemory(std::uint64_t size, std::uint64_t granularity);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // First fit; `size` is a multiple of the granularity. Nothing when the device has less than that left.
  std::optional<std::uint64_t> take(std::uint64_t size);
  // `touched`: its contents may be other than zero.
  void give(std::uint64_t offset, std::uint64_t size, bool touched);

  unsigned char* at(std::uint64_t offset) const;
  std::uint64_t size() const { return size_; }
  std::uint64_t used() const { return used_; }
  std::string check_invariants() const;

 private:
  const std::uint64_t size_;
  std::uint64_t span_ = 0;  // bytes of the mapping
  unsigned char* base_ = nullptr;
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> size, coalesced
  std::uint64_t used_ = 0;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_DEVICE_MEMORY_HPP_
