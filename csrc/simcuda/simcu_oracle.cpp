// The oracle of simcu.h: ledger, resolve, what was written, contents, calls, incidents.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "copy.hpp"
#include "include/simcu.h"
#include "json_text.hpp"
#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

template <typename Element>
std::size_t copy_elements(const std::vector<Element>& all, std::size_t first, Element* destination,
                          std::size_t capacity) {
  if (first >= all.size()) return 0;
  const std::size_t count = all.size() - first;
  std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first), std::min(count, capacity), destination);
  return count;
}

simcuPiece piece_of(const Stretch& stretch, std::uint64_t from, std::uint64_t size, bool multicast) {
  const Allocation& allocation = *stretch.allocation;
  return {.from_bytes = from,
          .size_bytes = size,
          .device = allocation.device,
          .owner_rank = allocation.owner_rank,
          .allocation = allocation.id,
          .through_multicast = multicast ? 1 : 0,
          .offset_bytes = stretch.offset};
}

simcuPiece nothing(std::uint64_t from, std::uint64_t size, bool multicast) {
  return {.from_bytes = from,
          .size_bytes = size,
          .device = -1,
          .owner_rank = -1,
          .allocation = 0,
          .through_multicast = multicast ? 1 : 0,
          .offset_bytes = 0};
}

// How far from the address nothing is mapped.
std::uint64_t hole_size(const Process& process, CUdeviceptr address, std::uint64_t size) {
  const auto next = process.space.mappings.upper_bound(address);
  return next == process.space.mappings.end() ? size : std::min<std::uint64_t>(size, next->first - address);
}

std::vector<simcuPiece> resolve(const Process& process, CUdeviceptr address, std::uint64_t size) {
  std::vector<simcuPiece> pieces;
  std::vector<Stretch> team;
  std::string missing;
  for (std::uint64_t done = 0; done < size;) {
    const Translation there = process.translate(address + done, -1, false);
    std::uint64_t now = std::min(size - done, there.size);
    if (there.reach == Reach::kMemory) {
      pieces.push_back(piece_of(there.stretch, done, now, false));
    } else if (there.reach == Reach::kMulticast) {
      now = there.multicast->uniform_from(there.multicast_offset, now);
      if (there.multicast->stretches_at(there.multicast_offset, now, team, missing)) {
        for (const Stretch& stretch : team) pieces.push_back(piece_of(stretch, done, now, true));
      } else {
        pieces.push_back(nothing(done, now, true));
      }
    } else {
      now = hole_size(process, address + done, size - done);
      pieces.push_back(nothing(done, now, false));
    }
    done += now;
  }
  return pieces;
}

// Calls visit(host, done, now) for the memory behind the range; false when some of it is not plain memory.
template <typename Visit>
bool visit_memory(const Process& process, CUdeviceptr address, std::uint64_t size, const Visit& visit) {
  for (std::uint64_t done = 0; done < size;) {
    const Translation there = process.translate(address + done, -1, false);
    if (there.reach != Reach::kMemory) return false;
    const std::uint64_t now = std::min(size - done, there.size);
    visit(there.stretch.host, done, now);
    done += now;
  }
  return true;
}

}  // namespace

}  // namespace allranks::sim

using namespace allranks::sim;

extern "C" {

size_t simcuCalls(simcuProcess process, size_t first, simcuCall* calls, size_t capacity) {
  return copy_elements(process_of(process).log, first, calls, capacity);
}

const char* simcuCallName(uint16_t call) { return name_of(static_cast<Call>(call)); }

size_t simcuIncidents(simcuNode node, char* text, size_t capacity) {
  return copy_text(node_of(node).incidents.as_json(), text, capacity);
}

size_t simcuLedger(simcuNode node, simcuLedgerEntry* entries, size_t capacity) {
  return copy_elements(ledger_of(node_of(node)), 0, entries, capacity);
}

const char* simcuCheckInvariants(simcuNode node) {
  thread_local std::string broken;
  broken = node_of(node).check_invariants();
  return broken.empty() ? nullptr : broken.c_str();
}

size_t simcuResolve(simcuProcess process, uint64_t address, uint64_t size, simcuPiece* pieces, size_t capacity) {
  return copy_elements(resolve(process_of(process), address, size), 0, pieces, capacity);
}

uint64_t simcuMemoryUsed(simcuNode node, int device) { return node_of(node).memory_used(device); }

uint64_t simcuMulticastUsed(simcuNode node, int device) {
  node_of(node).descriptors.sweep();
  return node_of(node).multicast_used[static_cast<size_t>(device)];
}

void simcuUsed(simcuNode node, simcuUsage* usage) {
  Node& used = node_of(node);
  usage->handles = ledger_size(used);  // looks at the descriptors too
  usage->memory_bytes = usage->multicast_bytes = 0;
  for (int device = 0; device < used.machine.device_count; ++device) {
    usage->memory_bytes += used.memory_taken(device);
    usage->multicast_bytes += used.multicast_used[static_cast<size_t>(device)];
  }
}

void simcuWritesRecord(simcuNode node, int on) { node_of(node).writes.record_from_now(on != 0); }

size_t simcuWrites(simcuNode node, simcuWrite* writes, size_t capacity) {
  return copy_elements(node_of(node).writes.entries(), 0, writes, capacity);
}

void simcuWritesClear(simcuNode node) { node_of(node).writes.clear(); }

int simcuPeek(simcuProcess process, uint64_t address, void* destination, uint64_t size) {
  auto* const out = static_cast<unsigned char*>(destination);
  const auto read = [&](const unsigned char* host, uint64_t done, uint64_t now) { std::memcpy(out + done, host, now); };
  return visit_memory(process_of(process), address, size, read) ? 0 : 1;
}

int simcuPoke(simcuProcess process, uint64_t address, const void* source, uint64_t size) {
  const auto* const in = static_cast<const unsigned char*>(source);
  const auto nothing_yet = [](unsigned char*, uint64_t, uint64_t) {};
  if (!visit_memory(process_of(process), address, size, nothing_yet)) return 1;
  visit_memory(process_of(process), address, size,
               [&](unsigned char* host, uint64_t done, uint64_t now) { std::memcpy(host, in + done, now); });
  return 0;
}

void* simcuHostView(simcuProcess process, uint64_t address, uint64_t size) {
  const Translation there = process_of(process).translate(address, -1, false);
  return there.reach == Reach::kMemory && there.size >= size ? there.stretch.host : nullptr;
}

}  // extern "C"
