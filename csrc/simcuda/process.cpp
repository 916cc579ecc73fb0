#include "process.hpp"

#include <algorithm>

#include "multicast.hpp"
#include "node.hpp"

namespace allranks::sim {

namespace {

constexpr CUmemGenericAllocationHandle kHandleTag = 0x3a'0000'0000ull;
constexpr std::uint64_t kSlabStep = 512;
constexpr std::uint64_t kLargestSmall = std::uint64_t{1} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Process::Process(Node& node, unsigned serial_number, int rank_name, const simcuPlacement& placement)
    : serial(serial_number), rank(rank_name), space(placement.rule, placement.base_offset_bytes), node_(node) {}

Process::~Process() {
  for (const auto& object : node_.multicast_objects()) object->forget(*this);
  node_.drop_descriptors_of(*this);
}

Birth Process::birth(LedgerKind kind) {
  const ThreadState& thread = this_thread();
  return {.ordinal = ordinals_[static_cast<std::size_t>(kind)]++,
          .step = thread.label.step,
          .call = thread.call,
          .owner = thread.label.owner};
}

Context& Process::primary_context(int device) {
  std::unique_ptr<Context>& context = contexts_[device];
  if (!context) context = std::make_unique<Context>(*this, device);
  return *context;
}

Context& Process::retain_context(int device) {
  Context& context = primary_context(device);
  if (context.retains++ == 0) context.birth = birth(LedgerKind::kContext);
  context.active = true;
  return context;
}

Context& Process::create_context(int device) {
  created_contexts_.push_back(std::make_unique<Context>(*this, device, created_contexts_.size() + 1));
  Context& context = *created_contexts_.back();
  context.birth = birth(LedgerKind::kContext);
  context.retains = 1;
  context.active = true;
  return context;
}

CUresult Process::drop_context(Context& context) {
  if (!context.active) return CUDA_SUCCESS;
  context.streams->synchronize_all(name_of(this_thread().call));
  if (!context.streams->idle()) return CUDA_ERROR_LAUNCH_TIMEOUT;
  free_memory_of(context);
  context.clear();
  bool last = true;
  for (Context* other : contexts()) {
    other->peers.erase(&context);
    if (other->device == context.device) last = false;
  }
  if (last) pools.end_device(context.device);
  return CUDA_SUCCESS;
}

Context* Process::context_with(CUcontext handle) const {
  for (const auto& [device, context] : contexts_) {
    if (context->handle() == handle) return context.get();
  }
  for (const auto& context : created_contexts_) {
    if (context->active && context->handle() == handle) return context.get();
  }
  return nullptr;
}

bool Process::has_destroyed(CUcontext handle) const {
  return std::any_of(created_contexts_.begin(), created_contexts_.end(),
                     [&](const auto& context) { return !context->active && context->handle() == handle; });
}

// The thread's stack may hold contexts of a process that it was bound to before; they are none of this one's.
Context* Process::current_context() const {
  const ThreadState& thread = this_thread();
  if (thread.contexts.empty()) return nullptr;
  for (const auto& [device, context] : contexts_) {
    if (context.get() == thread.contexts.back()) return context.get();
  }
  for (const auto& context : created_contexts_) {
    if (context.get() == thread.contexts.back()) return context.get();
  }
  return nullptr;
}

std::vector<Context*> Process::contexts() const {
  std::vector<Context*> all;
  for (const auto& [device, context] : contexts_) {
    if (context->active) all.push_back(context.get());
  }
  for (const auto& context : created_contexts_) {
    if (context->active) all.push_back(context.get());
  }
  return all;
}

CUmemGenericAllocationHandle Process::add_handle(Handle handle) {
  const CUmemGenericAllocationHandle value = kHandleTag | (next_handle_++ << 4);
  handles.emplace(value, std::move(handle));
  return value;
}

Handle* Process::find_handle(CUmemGenericAllocationHandle value) {
  const auto found = handles.find(value);
  return found == handles.end() ? nullptr : &found->second;
}

void Process::drop_mapping_of(CUmemGenericAllocationHandle value) {
  const auto found = handles.find(value);
  if (found == handles.end()) return;
  if (--found->second.mappings == 0 && found->second.references == 0) handles.erase(found);
}

void Process::release(std::map<CUmemGenericAllocationHandle, Handle>::iterator handle) {
  if (--handle->second.references == 0 && handle->second.mappings == 0) handles.erase(handle);
}

void Process::map_plain(const Context& context, CUdeviceptr address, std::uint64_t bytes,
                        std::shared_ptr<PhysicalRange> range, std::uint64_t range_offset) {
  Mapping mapping{.size = bytes,
                  .allocation = std::make_shared<Allocation>(Allocation{.range = std::move(range),
                                                                        .range_offset = range_offset,
                                                                        .size = bytes,
                                                                        .device = context.device,
                                                                        .owner_rank = rank,
                                                                        .id = node_.next_allocation_id()}),
                  .origin = Origin::kPlain,
                  .context = &context,
                  .buffer_id = next_buffer_id(),
                  .birth = birth(LedgerKind::kPlain)};
  // Every device of the process reaches it where peers are accessible; rights of peers come with cuCtxEnablePeerAccess.
  mapping.rights.read.set(static_cast<std::size_t>(context.device));
  for (const Context* other : contexts()) {
    if (other->peers.contains(&context)) {
      mapping.rights.read.set(static_cast<std::size_t>(other->device));
    }
  }
  mapping.rights.write = mapping.rights.read;
  space.mappings.emplace(address, std::move(mapping));
  ++translation_generation;
}

CUresult Process::allocate_plain(Context& context, std::uint64_t bytes, CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > node_.machine.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t largest_small = std::min(kLargestSmall, node_.machine.allocation_granularity_bytes / 2);
  return bytes <= largest_small && !space.has_wish() ? allocate_small(context, bytes, address)
                                                     : allocate_large(context, bytes, address);
}

std::uint64_t Slab::room_for(std::uint64_t bytes, bool reuse) const {
  std::uint64_t offset = reuse ? 0 : never_used;
  if (reuse) {
    for (const auto& [taken_offset, taken_bytes] : taken) {
      if (offset + bytes <= taken_offset) break;
      offset = taken_offset + taken_bytes;
    }
  }
  return offset + bytes <= range->size() ? offset : range->size();
}

// Measured on 2 x H200: two allocations of 256 bytes in a row lie 512 bytes apart, and a freed place is used again.
CUresult Process::allocate_small(Context& context, std::uint64_t bytes, CUdeviceptr* address) {
  const std::uint64_t step = round_up(bytes, kSlabStep);
  for (auto& [base, slab] : slabs_) {
    if (slab.device != context.device) continue;
    const std::uint64_t offset = slab.room_for(step, space.reuses());
    if (offset == slab.range->size()) continue;
    slab.taken.emplace(offset, step);
    slab.never_used = std::max(slab.never_used, offset + step);
    *address = base + offset;
    map_plain(context, *address, bytes, slab.range, offset);
    return CUDA_SUCCESS;
  }
  const std::uint64_t unit = node_.machine.allocation_granularity_bytes;
  std::shared_ptr<PhysicalRange> range = node_.take_physical(context.device, unit);
  if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUdeviceptr base = space.find_room(unit, unit);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  space.reservations.emplace(base, Reservation{.internal = true, .size = unit, .birth = {}});
  slabs_.emplace(base, Slab{.range = std::move(range), .device = context.device, .taken = {}});
  return allocate_small(context, bytes, address);
}

CUresult Process::allocate_large(Context& context, std::uint64_t bytes, CUdeviceptr* address) {
  const std::uint64_t unit = node_.machine.allocation_granularity_bytes;
  const std::uint64_t rounded = round_up(bytes, unit);
  std::shared_ptr<PhysicalRange> range = node_.take_physical(context.device, rounded);
  if (!range) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUdeviceptr base = space.find_room(rounded, unit);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  space.reservations.emplace(base, Reservation{.internal = true, .size = rounded});
  *address = base;
  map_plain(context, base, bytes, std::move(range), 0);
  return CUDA_SUCCESS;
}

void Process::erase_plain(std::map<CUdeviceptr, Mapping>::iterator mapping) {
  const CUdeviceptr address = mapping->first;
  space.mappings.erase(mapping);
  ++translation_generation;
  const auto reservation = space.reservation_at(address);
  const auto slab = slabs_.find(reservation->first);
  if (slab != slabs_.end()) {
    slab->second.taken.erase(address - slab->first);
    if (!slab->second.taken.empty()) return;
    slabs_.erase(slab);
  }
  space.reservations.erase(reservation);
}

// [cuda.h] Undefined: freeing exported memory before every importer has closed it.
void Process::note_open_elsewhere(const Mapping& mapping, const char* call) {
  if (mapping.allocation.use_count() > 1) {
    node_.incidents.add(*this, this_thread().label, "freed_while_open", call,
                        "another process still has the memory open");
  }
}

CUresult Process::free_plain(CUdeviceptr address) {
  const CUresult result = synchronize_device(*this, space.mappings.at(address).allocation->device);
  if (result != CUDA_SUCCESS) return result;
  // Other threads went on meanwhile.
  const auto still = space.mappings.find(address);
  if (still == space.mappings.end() || still->second.origin != Origin::kPlain) return CUDA_ERROR_INVALID_VALUE;
  note_open_elsewhere(still->second, "cuMemFree");
  erase_plain(still);
  return CUDA_SUCCESS;
}

// Measured: an inner pointer, a host pointer and a second free are INVALID_VALUE. Memory of a pool is freed without
// waiting for the device: the driver takes it that all accesses are over [CUDA programming guide, stream-ordered memory
// allocator].
CUresult Process::free_memory(CUdeviceptr address) {
  const auto mapping = space.mappings.find(address);
  if (mapping == space.mappings.end() || mapping->second.freed) return CUDA_ERROR_INVALID_VALUE;
  switch (mapping->second.origin) {
    case Origin::kPlain: return free_plain(address);
    case Origin::kPool: {
      note_open_elsewhere(mapping->second, "cuMemFree");
      const std::shared_ptr<MemoryPool> pool = mapping->second.pool;
      pool->free_now(address);
      return CUDA_SUCCESS;
    }
    case Origin::kImported:
      if (!mapping->second.pool) return CUDA_ERROR_INVALID_VALUE;  // cuIpcCloseMemHandle's
      unmap_imported(mapping);
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Process::free_in_stream(Stream& stream, CUdeviceptr address) {
  const Mapping& mapping = space.mappings.at(address);
  if (mapping.origin == Origin::kPool) {
    note_open_elsewhere(mapping, "cuMemFreeAsync");
    const std::shared_ptr<MemoryPool> pool = mapping.pool;
    pool->free_in(stream, address);
    return CUDA_SUCCESS;
  }
  if (mapping.origin != Origin::kImported || !mapping.pool) return CUDA_ERROR_INVALID_VALUE;
  space.mappings.at(address).freed = true;
  stream.enqueue(
      "cuMemFreeAsync",
      [this, address, buffer_id = mapping.buffer_id] {
        const auto still = space.mappings.find(address);
        if (still != space.mappings.end() && still->second.buffer_id == buffer_id) unmap_imported(still);
        return CUDA_SUCCESS;
      },
      Stream::When::kEvenIfBroken);
  return CUDA_SUCCESS;
}

void Process::free_memory_of(const Context& context) {
  for (auto mapping = space.mappings.begin(); mapping != space.mappings.end();) {
    const auto next = std::next(mapping);
    const CUdeviceptr address = mapping->first;
    const std::shared_ptr<MemoryPool> pool = mapping->second.pool;
    if (mapping->second.context == &context) {
      switch (mapping->second.origin) {
        case Origin::kMapped: break;
        case Origin::kPlain: erase_plain(mapping); break;
        case Origin::kPool: pool->free_now(address); break;
        case Origin::kImported: unmap_imported(mapping); break;
        case Origin::kHost: forget_host(mapping); break;
      }
    }
    mapping = next;
  }
  ++translation_generation;
}

CUdeviceptr Process::map_imported(const Context& context, std::shared_ptr<Allocation> allocation, const Rights& rights,
                                  std::shared_ptr<MemoryPool> pool) {
  const std::uint64_t unit = node_.machine.allocation_granularity_bytes;
  const std::uint64_t rounded = round_up(allocation->size, unit);
  const CUdeviceptr base = space.find_room(rounded, unit);
  if (base == 0) return 0;
  space.reservations.emplace(base, Reservation{.internal = true, .size = rounded, .birth = {}});
  const std::uint64_t size = allocation->size;
  space.mappings.emplace(base, Mapping{.size = size,
                                       .allocation = std::move(allocation),
                                       .multicast = nullptr,
                                       .rights = rights,
                                       .origin = Origin::kImported,
                                       .context = &context,
                                       .pool = std::move(pool),
                                       .buffer_id = next_buffer_id(),
                                       .birth = birth(LedgerKind::kImported)});
  ++translation_generation;
  return base;
}

void Process::unmap_imported(std::map<CUdeviceptr, Mapping>::iterator mapping) {
  space.reservations.erase(mapping->first);
  space.mappings.erase(mapping);
  ++translation_generation;
}

void Process::map_host(const Context& context, std::shared_ptr<HostPages> pages, std::uint64_t bytes) {
  const auto address = reinterpret_cast<CUdeviceptr>(pages->begin());
  Mapping mapping{.size = bytes,
                  .allocation = std::make_shared<Allocation>(Allocation{.range = nullptr,
                                                                        .pages = std::move(pages),
                                                                        .size = bytes,
                                                                        .device = -1,
                                                                        .owner_rank = rank,
                                                                        .id = node_.next_allocation_id()}),
                  .multicast = nullptr,
                  .origin = Origin::kHost,
                  .context = &context,
                  .pool = nullptr,
                  .buffer_id = next_buffer_id(),
                  .birth = birth(LedgerKind::kHost)};
  // [cuda.h] Every device reaches it, in every context.
  mapping.rights.read.set();
  mapping.rights.write.set();
  space.mappings.emplace(address, std::move(mapping));
  ++translation_generation;
}

void Process::forget_host(std::map<CUdeviceptr, Mapping>::iterator mapping) {
  space.mappings.erase(mapping);
  ++translation_generation;
}

std::string Process::check_invariants() const {
  std::map<CUmemGenericAllocationHandle, unsigned> mapped;
  for (const auto& [address, mapping] : space.mappings) {
    if (mapping.origin == Origin::kMapped) ++mapped[mapping.handle];
    if (mapping.context != nullptr && !mapping.context->active) return "memory outlives the context that it is of";
    if (mapping.references == 0) return "memory is mapped that nothing refers to";
  }
  for (const auto& [value, handle] : handles) {
    if (handle.references == 0 && handle.mappings == 0) return "a handle without references and mappings is kept";
    if (handle.mappings != mapped[value]) return "a handle miscounts its mappings";
  }
  for (const auto& [base, slab] : slabs_) {
    if (slab.taken.empty()) return "an empty slab of small allocations is kept";
  }
  const std::string broken = pools.check_invariants();
  return broken.empty() ? space.check_invariants() : broken;
}

Process& process_of(simcuProcess handle) { return *reinterpret_cast<Process*>(handle); }

simcuProcess handle_of(Process& process) { return reinterpret_cast<simcuProcess>(&process); }

}  // namespace allranks::sim
