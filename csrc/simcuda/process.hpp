// A virtual process: what a rank owns of the driver, also when ranks are threads of one real process.
//
// Its own address space, handle values, BUFFER_ID counter, contexts, descriptors, faults and log of calls.
// Threads: with the turn held.
#ifndef ALLRANKS_SIMCUDA_PROCESS_HPP_
#define ALLRANKS_SIMCUDA_PROCESS_HPP_

#include <cuda.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "address_space.hpp"
#include "context.hpp"
#include "fault_plan.hpp"
#include "host_functions.hpp"
#include "host_memory.hpp"
#include "include/simcu.h"
#include "ledger.hpp"
#include "memory_pool.hpp"
#include "thread_state.hpp"

namespace allranks::sim {

class Node;

// A handle value of cuMemCreate, cuMulticastCreate or an import. It lives as long as it has references, or mappings
// made through it; measured, it can still be mapped, retained and exported when only mappings are left.
struct Handle {
  std::shared_ptr<Allocation> allocation;
  std::shared_ptr<MulticastObject> multicast;
  unsigned handle_types = 0;  // what it may be exported as; measured, nothing for an import
  unsigned references = 1;
  unsigned mappings = 0;
  Birth birth;
};

// Memory that small plain allocations share, 512 bytes at a time.
struct Slab {
  std::shared_ptr<PhysicalRange> range;
  int device = 0;
  std::map<std::uint64_t, std::uint64_t> taken;  // offset -> bytes, in steps of 512
  std::uint64_t never_used = 0;                  // everything handed out so far lies below

  // Where `bytes` fit; the size of the range when they do not.
  std::uint64_t room_for(std::uint64_t bytes, bool reuse) const;
};

class Process {
 public:
  // `serial_number` is unique in the node.
  Process(Node& node, unsigned serial_number, int rank_name, const simcuPlacement& placement);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Node& node() const { return node_; }
  const unsigned serial;
  const int rank;

  Birth birth(LedgerKind kind);

  // --- contexts ---
  std::uint64_t next_object = 1;         // of streams, events, modules and functions, for their handles
  std::uint64_t next_stream_id = 1;      // default streams included
  Context& primary_context(int device);  // active or not
  Context& retain_context(int device);
  Context& create_context(int device);
  // Ends what the context has; LAUNCH_TIMEOUT when its work cannot come to an end.
  CUresult drop_context(Context& context);
  // Active, or a primary one.
  Context* context_with(CUcontext handle) const;
  // True when the handle was that of a created context.
  bool has_destroyed(CUcontext handle) const;
  Context* current_context() const;        // active or not; null when the thread has none of this process
  std::vector<Context*> contexts() const;  // active ones

  // --- handles ---
  CUmemGenericAllocationHandle add_handle(Handle handle);
  Handle* find_handle(CUmemGenericAllocationHandle value);
  void drop_mapping_of(CUmemGenericAllocationHandle value);
  void release(std::map<CUmemGenericAllocationHandle, Handle>::iterator handle);
  std::map<CUmemGenericAllocationHandle, Handle> handles;

  // --- memory ---
  AddressSpace space;
  std::uint64_t translation_generation = 1;  // changes with every translation
  Translation translate(CUdeviceptr address, int device, bool for_writing) const {
    return space.translate(address, device, for_writing);
  }
  unsigned long long next_buffer_id() { return ++last_buffer_id_; }
  CUresult allocate_plain(Context& context, std::uint64_t bytes, CUdeviceptr* address);
  // Memory of cuMemAlloc, of a pool, or imported from one.
  CUresult free_memory(CUdeviceptr address);
  // Memory of a pool, when the stream gets there. `address` is where a mapping begins that was not freed yet.
  CUresult free_in_stream(Stream& stream, CUdeviceptr address);
  // Gives back all memory that the context holds, as its end does.
  void free_memory_of(const Context& context);
  // A mapping of memory that another process made; 0: no room.
  CUdeviceptr map_imported(const Context& context, std::shared_ptr<Allocation> allocation, const Rights& rights,
                           std::shared_ptr<MemoryPool> pool);
  void unmap_imported(std::map<CUdeviceptr, Mapping>::iterator mapping);
  // Page-locked host memory.
  void map_host(const Context& context, std::shared_ptr<HostPages> pages, std::uint64_t bytes);
  void forget_host(std::map<CUdeviceptr, Mapping>::iterator mapping);
  PoolTable pools{*this};

  // Where host pointers lead; null: into this real process.
  HostMemory* host = nullptr;
  // Who calls functions of the program that streams get to; null: threads of this real process.
  HostFunctions* host_functions = nullptr;

  // --- modules of machine code ---
  // They are loaded, and launches of their kernels counted by name, instead of refused. Nothing of them is executed.
  bool records_machine_code = false;
  std::map<std::string, std::uint64_t> recorded_launches;

  // --- faults and log ---
  struct Fault {
    Call call;  // kCount: any
    std::uint64_t countdown;
    CUresult code;
    FaultAction action = FaultAction::kFail;
    std::chrono::milliseconds delay{0};
    std::size_t planned = kNotPlanned;  // its number in the node's plan
  };
  static constexpr std::size_t kNotPlanned = static_cast<std::size_t>(-1);
  std::vector<Fault> faults;
  bool disturbed = false;            // as it was made: some of its faults are more than a code
  pid_t pid = 0;                     // the real process that a fault kills; 0: this one, -1: not known
  std::atomic<bool> killed = false;  // by a fault
  std::vector<simcuCall> log;
  bool keeps_log = true;
  bool initialised = false;
  bool unwound = false;              // by a stall: every later call returns CUDA_ERROR_LAUNCH_TIMEOUT
  CUresult unusable = CUDA_SUCCESS;  // what every call answers when there is no machine to drive

  std::string check_invariants() const;

 private:
  CUresult allocate_small(Context& context, std::uint64_t bytes, CUdeviceptr* address);
  CUresult allocate_large(Context& context, std::uint64_t bytes, CUdeviceptr* address);
  void map_plain(const Context& context, CUdeviceptr address, std::uint64_t bytes, std::shared_ptr<PhysicalRange> range,
                 std::uint64_t range_offset);
  CUresult free_plain(CUdeviceptr address);
  void erase_plain(std::map<CUdeviceptr, Mapping>::iterator mapping);
  void note_open_elsewhere(const Mapping& mapping, const char* call);

  Node& node_;
  std::array<std::uint32_t, kLedgerKindCount> ordinals_{};
  std::map<int, std::unique_ptr<Context>> contexts_;        // primary ones
  std::vector<std::unique_ptr<Context>> created_contexts_;  // destroyed ones too
  std::map<CUdeviceptr, Slab> slabs_;
  CUmemGenericAllocationHandle next_handle_ = 1;
  unsigned long long last_buffer_id_ = 0;
};

// The process that the calling thread speaks for; for a thread bound to nothing the default one, which is made from
// SIMCU_MACHINE and SIMCU_DEVICES when it is first asked for.
Process& calling_process();

Process& process_of(simcuProcess handle);
simcuProcess handle_of(Process& process);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_PROCESS_HPP_
