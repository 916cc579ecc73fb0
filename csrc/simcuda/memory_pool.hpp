// Memory pools: stream-ordered allocations, and the device memory that a pool keeps for the next ones.
//
// A pool takes device memory in chunks and hands out pieces of them. A piece given to cuMemFreeAsync stays mapped until
// its stream gets there; before that only the same stream may have it again, at the same size, afterwards everybody
// as the pool's attributes say. When a pool cannot grow, the call waits for pieces that are on their way back, where
// hardware would make the stream wait. A chunk with nothing in it goes back to the device at the next synchronisation
// of a stream, an event or a context, if the pool holds more than its release threshold.
//
// Not thread-safe: with the turn held. Source: CUDA driver API, "Stream Ordered Memory Allocator". Measured: free and
// allocate of the same size on a stream gives the same address and a new BUFFER_ID. [assumption] Pieces are multiples
// of 512 bytes, chunks of 32 MiB where the device has as much.
#ifndef ALLRANKS_SIMCUDA_MEMORY_POOL_HPP_
#define ALLRANKS_SIMCUDA_MEMORY_POOL_HPP_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "address_space.hpp"
#include "ledger.hpp"
#include "stream.hpp"

namespace allranks::sim {

class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  struct Properties {
    int device = 0;
    unsigned handle_types = 0;    // what the pool may be exported as
    std::uint64_t max_bytes = 0;  // 0: no limit but the device's
    bool is_default = false;
  };
  // What cuMemPoolSetAttribute sets.
  struct Reuse {
    bool follow_event_dependencies = true;  // of no effect: memory on its way back goes to its own stream only
    bool opportunistic = true;
    bool internal_dependencies = true;
  };

  // `serial` is unique in the node.
  MemoryPool(Process& process, std::uint32_t serial, const Properties& properties);

  CUresult allocate(Stream& stream, std::uint64_t bytes, CUdeviceptr* address);
  // `address` is where an allocation of this pool begins that was not freed yet.
  void free_in(Stream& stream, CUdeviceptr address);
  // Of one that is on its way back too: the stream finds nothing there.
  void free_now(CUdeviceptr address);

  // Device memory goes back until the pool has no more than `keep` bytes, or no chunk is empty.
  void shrink_to(std::uint64_t keep);
  // The host has seen that everything freed and done is done.
  void synchronised();
  // The pool's process ends, or the context of its device: nothing of its memory is its business any more.
  void abandon();
  bool in_use() const { return !chunks_.empty(); }

  // The allocation with that number, to be imported; null when it was freed.
  std::shared_ptr<Allocation> find(std::uint32_t allocation) const;

  // Rights of devices to all memory of the pool, in the process that made it.
  Rights rights;

  std::uint64_t reserved() const { return reserved_; }
  std::uint64_t used() const { return used_; }
  std::vector<const PhysicalRange*> ranges() const;
  // `mapped`: how many mappings of the process say that they are of this pool.
  std::string check_invariants(std::size_t mapped) const;

  const std::uint32_t serial;
  const Properties properties;
  Reuse reuse;
  std::uint64_t release_threshold = 0;
  std::uint64_t reserved_high = 0;
  std::uint64_t used_high = 0;
  bool destroyed = false;  // ends with its last allocation
  bool exported = false;   // as a shareable handle, once

 private:
  // The way of a piece back into the pool.
  struct Return {
    const Stream* stream;
    bool done = false;
    bool seen = false;  // by the host, at a synchronisation
  };
  struct Piece {
    std::uint64_t bytes = 0;  // as asked for
    std::uint64_t room = 0;
    std::shared_ptr<Return> back = {};  // null: in use
  };
  struct Chunk {
    std::shared_ptr<PhysicalRange> range;
    std::map<std::uint64_t, Piece> pieces = {};  // by offset
    std::uint64_t never_used = 0;                // everything handed out so far lies below

    std::uint64_t hole_for(std::uint64_t room, bool reuses) const;
  };

  bool take_again(Stream& stream, std::uint64_t bytes, CUdeviceptr* address);
  bool take_hole(Stream& stream, std::uint64_t bytes, CUdeviceptr* address);
  CUresult grow(std::uint64_t bytes);
  bool await_returns(const Stream& stream);
  void settle(const Stream* stream);
  void map(const Stream& stream, CUdeviceptr address, const Chunk& chunk, std::uint64_t offset, std::uint64_t bytes);
  void unmap(CUdeviceptr address);
  void end_return(CUdeviceptr address, const std::shared_ptr<Return>& back);
  Piece* piece_at(CUdeviceptr address);

  Process* process_;  // null once it has ended
  std::map<CUdeviceptr, Chunk> chunks_;
  std::uint64_t reserved_ = 0;
  std::uint64_t used_ = 0;
};

// The pools of a process: one a device from the start, those that it made, and those that it imported.
class PoolTable {
 public:
  explicit PoolTable(Process& process) : process_(process) {}
  ~PoolTable();
  PoolTable(const PoolTable&) = delete;
  PoolTable& operator=(const PoolTable&) = delete;

  struct Entry {
    std::shared_ptr<MemoryPool> pool;
    bool imported = false;
    Rights imported_rights = {};  // of devices to what is imported from it
    Birth birth = {};

    Rights& rights() { return imported ? imported_rights : pool->rights; }
  };

  CUmemoryPool default_of(int device);
  CUmemoryPool current_of(int device);
  void set_current(int device, CUmemoryPool pool);
  CUmemoryPool create(const MemoryPool::Properties& properties);
  CUmemoryPool import(std::shared_ptr<MemoryPool> pool);
  // Null for a handle that is no pool of this process.
  Entry* find(CUmemoryPool handle);
  CUmemoryPool handle_of(const MemoryPool& pool) const;  // null once destroyed
  void destroy(CUmemoryPool handle);
  void end_device(int device);

  // Gives the rights of a pool to what is mapped of it.
  void open_to_rights(Entry& entry);
  void synchronised();
  const std::map<std::uint64_t, Entry>& created() const { return entries_; }
  std::vector<const PhysicalRange*> ranges(int device) const;
  std::string check_invariants() const;

 private:
  CUmemoryPool add(Entry entry);
  void forget_unused();

  Process& process_;
  std::map<std::uint64_t, Entry> entries_;  // the default ones included
  std::map<int, CUmemoryPool> defaults_;
  std::map<int, CUmemoryPool> current_;
  std::vector<std::shared_ptr<MemoryPool>> own_;  // destroyed ones too, until they are empty
  std::uint64_t next_handle_ = 1;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_MEMORY_POOL_HPP_
