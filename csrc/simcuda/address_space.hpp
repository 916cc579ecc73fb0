// The address space of a virtual process: reservations, what is mapped where, and with which rights.
//
// Addresses are numbers in [2^48, 2^49): no host pointer is ever there, so dereferencing one on the host faults, as on
// hardware. The layout is deterministic and follows the process's placement rule.
// Threads: with the turn held. Source: CUDA driver API, "Virtual Memory Management".
#ifndef ALLRANKS_SIMCUDA_ADDRESS_SPACE_HPP_
#define ALLRANKS_SIMCUDA_ADDRESS_SPACE_HPP_

#include <cuda.h>

#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "allocation.hpp"
#include "include/simcu.h"
#include "ledger.hpp"

namespace allranks::sim {

struct Context;
class MemoryPool;
class MulticastObject;

inline constexpr CUdeviceptr kLowestAddress = CUdeviceptr{1} << 48;
inline constexpr CUdeviceptr kHighestAddress = CUdeviceptr{1} << 49;
inline constexpr std::size_t kMostDevices = 128;

// Bytes of one allocation, [offset, offset + size) of it.
struct Stretch {
  std::shared_ptr<Allocation> allocation;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  unsigned char* host = nullptr;
};

enum class Reach { kMemory, kMulticast, kNothing, kNoAccess };

// What an address leads to, and how far from it that answer holds.
struct Translation {
  Reach reach = Reach::kNothing;
  Stretch stretch;                       // kMemory
  MulticastObject* multicast = nullptr;  // kMulticast
  std::uint64_t multicast_offset = 0;
  std::uint64_t size = 0;
  CUdeviceptr begin = 0;  // the whole window that one mapping or allocation covers
  CUdeviceptr end = 0;
};

struct Rights {
  std::bitset<kMostDevices> read;
  std::bitset<kMostDevices> write;
};

// Where what is mapped came from.
enum class Origin {
  kMapped,    // cuMemMap: memory of cuMemCreate or multicast
  kPlain,     // cuMemAlloc: every device of the process's contexts reaches it, and it is its own reservation
  kPool,      // cuMemAllocAsync and its like
  kImported,  // cuIpcOpenMemHandle, or with a pool cuMemPoolImportPointer: memory of another process
  kHost       // page-locked host memory, at the host's own addresses and in no reservation
};

// What occupies addresses.
struct Mapping {
  std::uint64_t size = 0;
  std::shared_ptr<Allocation> allocation;  // null for multicast
  std::shared_ptr<MulticastObject> multicast;
  CUmemGenericAllocationHandle handle = 0;  // of kMapped
  Rights rights;
  Origin origin = Origin::kMapped;
  const Context* context = nullptr;  // that it belongs to, and ends with; null for kMapped
  std::shared_ptr<MemoryPool> pool;  // that it was taken or imported from
  unsigned references = 1;           // of cuIpcOpenMemHandle
  bool freed = false;                // by cuMemFreeAsync, and the stream is not there yet
  unsigned long long buffer_id = 0;
  int sync_memops = 0;  // measured: off until it is set
  Birth birth;
};

struct Reservation {
  bool internal = false;  // made by the driver for plain allocations, not by cuMemAddressReserve
  std::uint64_t size = 0;
  Birth birth;
};

class AddressSpace {
 public:
  AddressSpace(int rule, std::uint64_t base_offset_bytes);

  void place(int rule) { rule_ = rule; }
  void wish(CUdeviceptr address) { wish_ = address; }
  // False when an address is never handed out twice.
  bool reuses() const { return rule_ != SIMCU_PLACE_NEVER_REUSE; }
  bool has_wish() const { return wish_ != 0; }

  // Finds room by the placement rule, or at `fixed` when that is free; 0: no room.
  CUdeviceptr find_room(std::uint64_t size, std::uint64_t alignment, CUdeviceptr fixed = 0);

  std::map<CUdeviceptr, Reservation> reservations;
  std::map<CUdeviceptr, Mapping> mappings;

  // The reservation or mapping that holds the address; end() when none does.
  std::map<CUdeviceptr, Reservation>::iterator reservation_at(CUdeviceptr address);
  std::map<CUdeviceptr, Mapping>::iterator mapping_at(CUdeviceptr address);
  std::map<CUdeviceptr, Mapping>::const_iterator mapping_at(CUdeviceptr address) const;
  // True when a part of the range was given to cuMemFreeAsync already.
  bool freed_within(CUdeviceptr address, std::uint64_t size) const;
  // True when one stretch of page-locked host memory holds the whole range.
  bool is_page_locked(CUdeviceptr address, std::uint64_t size) const;
  // True when some mapping lies in [address, address + size).
  bool mapped_within(CUdeviceptr address, std::uint64_t size) const;
  // True when mappings cover [address, address + size) without a hole.
  bool mapped_throughout(CUdeviceptr address, std::uint64_t size) const;

  // `device` -1: without asking for rights.
  Translation translate(CUdeviceptr address, int device, bool for_writing) const;
  std::string check_invariants() const;

 private:
  std::optional<CUdeviceptr> lowest_fit(std::uint64_t size, std::uint64_t alignment, CUdeviceptr from) const;
  std::optional<CUdeviceptr> highest_fit(std::uint64_t size, std::uint64_t alignment) const;
  bool is_free(CUdeviceptr address, std::uint64_t size) const;

  int rule_;
  CUdeviceptr base_;
  CUdeviceptr never_used_;  // everything handed out so far lies below
  CUdeviceptr wish_ = 0;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_ADDRESS_SPACE_HPP_
