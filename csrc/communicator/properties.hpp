// Argument structs of cuda.h, filled in the one way that this project uses.
//
// Threads: any; pure functions.
#ifndef ALLRANKS_COMMUNICATOR_PROPERTIES_HPP_
#define ALLRANKS_COMMUNICATOR_PROPERTIES_HPP_

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace allranks {

// Physical memory of one device; `shareable`: its handle can be exported as a POSIX file descriptor.
inline CUmemAllocationProp allocation_properties(CUdevice device, bool shareable) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
  return properties;
}

inline CUmemAccessDesc read_write_access(CUdevice device) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

inline CUmulticastObjectProp multicast_properties(std::size_t size, unsigned device_count) {
  CUmulticastObjectProp properties{};
  properties.numDevices = device_count;
  properties.size = size;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_PROPERTIES_HPP_
