// What device code calls: translation, stores, words to signal with, multicast. See struct simcuBlock.
#include <cstring>

#include "address_space.hpp"
#include "block.hpp"
#include "context.hpp"
#include "copy.hpp"
#include "incidents.hpp"
#include "multicast.hpp"
#include "multimem.hpp"
#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

BlockGroup& group_of(simcuBlock* block) { return *static_cast<BlockGroup::Lane*>(block->detail)->group; }

[[noreturn]] void fail_access(BlockGroup& group, AccessFault fault, CUdeviceptr address, std::uint64_t size) {
  group.fail(CUDA_ERROR_ILLEGAL_ADDRESS,
             fault == AccessFault::kMulticastUnbound ? "multicast_unbound" : "illegal_address",
             place_of(address, size) + ": " + reason_of(fault));
}

void succeed(BlockGroup& group, AccessFault fault, CUdeviceptr address, std::uint64_t size) {
  if (fault != AccessFault::kNone) fail_access(group, fault, address, size);
}

// What a plain read through a multicast address finds: undefined on hardware, and reported, so never mistaken.
void* poison() {
  alignas(16) static unsigned char bytes[4096];
  std::memset(bytes, 0xa5, sizeof bytes);
  return bytes;
}

void* translate(simcuBlock* block, std::uint64_t address, std::uint64_t size, int for_writing) {
  BlockGroup& group = group_of(block);
  const Access access = group.access();
  const Translation there = access.process.translate(address, access.device, for_writing != 0);
  switch (there.reach) {
    case Reach::kMemory: break;
    case Reach::kMulticast:
      if (for_writing != 0 || size > 4096) return nullptr;
      group.context().node().incidents.add(access.process, access.label, "multicast_read", "kernel " + group.kernel(),
                                           place_of(address, size) + ": a plain read through a multicast address");
      return poison();
    case Reach::kNothing: fail_access(group, AccessFault::kNothingMapped, address, size);
    case Reach::kNoAccess: fail_access(group, AccessFault::kNoRights, address, size);
  }
  if (there.size < size) return nullptr;
  block->window[1] = block->window[0];
  block->window[0] = {.begin = there.begin,
                      .end = there.end,
                      .host = there.stretch.host - (address - there.begin),
                      .generation = access.process.translation_generation};
  return there.stretch.host;
}

void store(simcuBlock* block, std::uint64_t address, const void* source, std::uint64_t size) {
  BlockGroup& group = group_of(block);
  succeed(group, write_bytes(group.access(), address, source, size), address, size);
}

void copy(simcuBlock* block, std::uint64_t destination, std::uint64_t source, std::uint64_t size) {
  BlockGroup& group = group_of(block);
  const Access access = group.access();
  succeed(group, check_range(access, source, size, false), source, size);
  succeed(group, copy_bytes(access, destination, access, source, size), destination, size);
}

// The memory of one naturally aligned word; ends the lane when there is none.
void* word_at(simcuBlock* block, std::uint64_t address, int size, bool for_writing) {
  BlockGroup& group = group_of(block);
  if (address % static_cast<std::uint64_t>(size) != 0) {
    group.fail(CUDA_ERROR_MISALIGNED_ADDRESS, "illegal_address",
               place_of(address, static_cast<std::uint64_t>(size)) + ": not naturally aligned");
  }
  void* const host = translate(block, address, static_cast<std::uint64_t>(size), for_writing ? 1 : 0);
  if (host == nullptr) {
    fail_access(group, AccessFault::kNothingMapped, address, static_cast<std::uint64_t>(size));
  }
  return host;
}

std::uint64_t read_word(const void* host, int size) {
  std::uint64_t value = 0;
  std::memcpy(&value, host, static_cast<std::size_t>(size));
  return value;
}

std::uint64_t load_word(simcuBlock* block, std::uint64_t address, int size) {
  group_of(block).turnstile().decide();
  return read_word(word_at(block, address, size, false), size);
}

void store_word(simcuBlock* block, std::uint64_t address, std::uint64_t value, int size) {
  group_of(block).turnstile().decide();
  store(block, address, &value, static_cast<std::uint64_t>(size));
}

std::uint64_t add_word(simcuBlock* block, std::uint64_t address, std::uint64_t value, int size) {
  group_of(block).turnstile().decide();
  const std::uint64_t old = read_word(word_at(block, address, size, true), size);
  const std::uint64_t sum = old + value;
  store(block, address, &sum, static_cast<std::uint64_t>(size));
  return old;
}

int spin_until(simcuBlock* block, std::uint64_t address, int size, int (*done)(std::uint64_t, std::uint64_t),
               std::uint64_t argument, std::uint64_t timeout_us, const char* what) {
  BlockGroup& group = group_of(block);
  Turnstile& turnstile = group.turnstile();
  turnstile.decide();
  group.check_context();
  const void* const host = word_at(block, address, size, false);
  if (done(read_word(host, size), argument) != 0) return 0;
  const Context& context = group.context();
  const WaitSpec spec{
      .ready = [&] { return done(read_word(host, size), argument) != 0 || context.sticky_error != CUDA_SUCCESS; },
      .key = host,
      .call = "device spin",
      .object = "kernel " + group.kernel() + ": " + what,
      .timeout_us = timeout_us,
      .polled = group.access().process.space.is_page_locked(address, static_cast<std::uint64_t>(size))};
  switch (turnstile.wait(spec)) {
    case WaitResult::kReady: group.check_context(); return 0;
    case WaitResult::kTimeout: return 1;
    default: throw LaneEnded{CUDA_ERROR_LAUNCH_TIMEOUT};
  }
}

void sync(simcuBlock* block) {
  auto& lane = *static_cast<BlockGroup::Lane*>(block->detail);
  lane.group->sync(lane);
}

// The stretch of every device behind [address, address + size) of a multicast mapping.
std::vector<Stretch> team_at(BlockGroup& group, std::uint64_t address, std::uint64_t size, bool for_writing) {
  const Access access = group.access();
  const Translation there = access.process.translate(address, access.device, for_writing);
  if (there.reach != Reach::kMulticast) {
    group.fail(CUDA_ERROR_ILLEGAL_ADDRESS, "illegal_address",
               place_of(address, size) + ": a multimem access to what is no multicast address");
  }
  std::vector<Stretch> stretches;
  std::string missing;
  if (!there.multicast->stretches_at(there.multicast_offset, size, stretches, missing)) {
    group.fail(CUDA_ERROR_ILLEGAL_ADDRESS, "multicast_unbound", place_of(address, size) + ": " + missing);
  }
  return stretches;
}

void check_pair(BlockGroup& group, int type, int operation, int count, std::uint64_t address) {
  const std::size_t bytes = element_bytes(type) * static_cast<std::size_t>(count);
  const bool exists = multimem_supported(type, operation, group.context().node().machine.compute_capability_major);
  if (!exists || count < 1 || bytes < 4 || bytes > 16 || address % bytes != 0) {
    group.fail(CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal_address",
               "no multimem instruction for type " + std::to_string(type) + ", operation " + std::to_string(operation) +
                   ", " + std::to_string(count) + " elements, " + place_of(address, bytes));
  }
}

void multimem_load_reduce(simcuBlock* block, std::uint64_t address, void* destination, int type, int operation,
                          int count) {
  BlockGroup& group = group_of(block);
  check_pair(group, type, operation, count, address);
  const std::uint64_t size = element_bytes(type) * static_cast<std::size_t>(count);
  bool first = true;
  for (const Stretch& stretch : team_at(group, address, size, false)) {
    if (first) {
      std::memcpy(destination, stretch.host, size);
    } else {
      reduce_elements(type, operation, destination, stretch.host, count);
    }
    first = false;
  }
}

void multimem_store(simcuBlock* block, std::uint64_t address, const void* source, std::uint64_t size) {
  BlockGroup& group = group_of(block);
  group.turnstile().decide();
  if ((size != 4 && size != 8 && size != 16) || address % size != 0) {
    group.fail(CUDA_ERROR_MISALIGNED_ADDRESS, "illegal_address", place_of(address, size) + ": multimem.st");
  }
  succeed(group, write_bytes(group.access(), address, source, size), address, size);
}

void multimem_reduce(simcuBlock* block, std::uint64_t address, const void* source, int type, int operation, int count) {
  BlockGroup& group = group_of(block);
  group.turnstile().decide();
  check_pair(group, type, operation, count, address);
  const std::uint64_t size = element_bytes(type) * static_cast<std::size_t>(count);
  for (const Stretch& stretch : team_at(group, address, size, true)) {
    reduce_elements(type, operation, stretch.host, source, count);
    note_written(group.access(), stretch, size);
  }
}

}  // namespace

void install_accessors(simcuBlock& view) {
  view.translate = translate;
  view.store = store;
  view.copy = copy;
  view.load_word = load_word;
  view.store_word = store_word;
  view.add_word = add_word;
  view.spin_until = spin_until;
  view.sync = sync;
  view.multimem_load_reduce = multimem_load_reduce;
  view.multimem_store = multimem_store;
  view.multimem_reduce = multimem_reduce;
}

}  // namespace allranks::sim
