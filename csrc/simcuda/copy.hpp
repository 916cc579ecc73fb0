// Every access to the contents of device memory goes through here: reads, writes, copies and fills by driver calls,
// streams and device code. It checks rights and bounds, reaches every device behind a multicast address, records
// what was written, and wakes who waits for a word.
//
// Not for addresses of the host's own memory, except where a parameter is a host pointer.
// Threads: with the turn held.
#ifndef ALLRANKS_SIMCUDA_COPY_HPP_
#define ALLRANKS_SIMCUDA_COPY_HPP_

#include <cuda.h>

#include <cstdint>

#include "thread_state.hpp"

namespace allranks::sim {

// Who accesses: the process whose address space is meant, the device that does it, and on whose behalf.
struct Access {
  Process& process;
  int device;
  Label label;
};

struct Stretch;

// Why an access failed; kNone: it did not.
enum class AccessFault { kNone, kNothingMapped, kNoRights, kMulticastUnbound };

// For reports: "8 bytes at 0x1000000000000", "nothing is mapped there".
std::string place_of(CUdeviceptr address, std::uint64_t size);
const char* reason_of(AccessFault fault);

// True for numbers in the range that device addresses come from.
bool is_device_address(CUdeviceptr address);

// Whether [address, address + size) can be accessed, without accessing it.
AccessFault check_range(const Access& access, CUdeviceptr address, std::uint64_t size, bool for_writing);

AccessFault write_bytes(const Access& access, CUdeviceptr destination, const void* source, std::uint64_t size);
AccessFault read_bytes(const Access& access, void* destination, CUdeviceptr source, std::uint64_t size);
// The device that reaches an address: measured, plain memory is reached as its own device reaches it, whose context is
// current or is named by the call; other memory as the given device reaches it.
int reaching_device(const Process& process, CUdeviceptr address, int device);
// The two ends may be reached by different devices.
AccessFault copy_bytes(const Access& writer, CUdeviceptr destination, const Access& reader, CUdeviceptr source,
                       std::uint64_t size);
// Writes `count` elements of `element_bytes` (1, 2 or 4), all equal to *element.
AccessFault fill_bytes(const Access& access, CUdeviceptr destination, const void* element, std::uint64_t element_bytes,
                       std::uint64_t count);

// An aligned word of 4 or 8 bytes where a stretch begins, which the host may write at the same time; false: not there.
bool read_word(const Stretch& stretch, unsigned bytes, std::uint64_t* value);

// For those who changed the first `size` bytes of a stretch themselves: records it and wakes who waits for it.
void note_written(const Access& access, const Stretch& stretch, std::uint64_t size);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_COPY_HPP_
