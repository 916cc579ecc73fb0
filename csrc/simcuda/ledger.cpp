#include "ledger.hpp"

#include <algorithm>
#include <tuple>

#include "context.hpp"
#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

struct Row {
  LedgerKind kind;
  const Birth& birth;
  std::uint32_t references;
  int device;
  std::uint64_t bytes;
};

void append(std::vector<simcuLedgerEntry>& entries, int rank, const Row& row) {
  entries.push_back({.kind = static_cast<std::int32_t>(row.kind),
                     .rank = rank,
                     .ordinal = row.birth.ordinal,
                     .step = row.birth.step,
                     .call = static_cast<std::uint16_t>(row.birth.call),
                     .owner = row.birth.owner,
                     .references = row.references,
                     .device = row.device,
                     .bytes = row.bytes});
}

LedgerKind kind_of(Origin origin) {
  switch (origin) {
    case Origin::kMapped: return LedgerKind::kMapping;
    case Origin::kPlain:
    case Origin::kPool: return LedgerKind::kPlain;
    case Origin::kImported: return LedgerKind::kImported;
    case Origin::kHost: return LedgerKind::kHost;
  }
  return LedgerKind::kMapping;
}

template <typename Visit>
void visit_memory(const Process& process, const Visit& visit) {
  for (const auto& [value, handle] : process.handles) {
    const bool multicast = handle.multicast != nullptr;
    visit(process.rank, Row{multicast ? LedgerKind::kMulticast : LedgerKind::kAllocation, handle.birth,
                            handle.references, multicast ? -1 : handle.allocation->device,
                            multicast ? handle.multicast->size : handle.allocation->size});
  }
  for (const auto& [address, reservation] : process.space.reservations) {
    if (!reservation.internal) {
      visit(process.rank, Row{LedgerKind::kReservation, reservation.birth, 1, -1, reservation.size});
    }
  }
  for (const auto& [address, mapping] : process.space.mappings) {
    if (mapping.freed) continue;
    visit(process.rank, Row{kind_of(mapping.origin), mapping.birth, mapping.references,
                            mapping.allocation ? mapping.allocation->device : -1, mapping.size});
  }
  for (const auto& [handle, entry] : process.pools.created()) {
    if (entry.pool->properties.is_default && !entry.imported) continue;  // there from the start
    visit(process.rank, Row{LedgerKind::kPool, entry.birth, 1, entry.pool->properties.device, 0});
  }
}

template <typename Visit>
void visit_contexts(const Process& process, const Visit& visit) {
  for (const Context* context : process.contexts()) {
    visit(process.rank, Row{LedgerKind::kContext, context->birth, context->retains, context->device, 0});
    for (const auto& [handle, stream] : context->streams->created()) {
      visit(process.rank, Row{LedgerKind::kStream, stream->birth, 1, context->device, 0});
    }
    for (const auto& [handle, held] : context->events->all()) {
      visit(process.rank, Row{LedgerKind::kEvent, held.birth, 1, context->device, 0});
    }
    for (const auto& [handle, module] : context->modules->all()) {
      visit(process.rank, Row{LedgerKind::kModule, module.birth, 1, context->device, 0});
    }
  }
}

// Calls visit(rank, row) for everything alive, in no particular order.
template <typename Visit>
void visit_all(Node& node, const Visit& visit) {
  node.descriptors.sweep();
  for (const auto& process : node.processes()) {
    visit_memory(*process, visit);
    visit_contexts(*process, visit);
  }
  for (const auto& object : node.multicast_objects()) {
    for (const auto& [device, bound] : object->bindings()) {
      for (const auto& [offset, binding] : bound) {
        visit(binding.owner->rank, Row{LedgerKind::kBinding, binding.birth, 1, device, binding.size});
      }
    }
  }
  for (const Exported& exported : node.descriptors.all()) {
    visit(exported.owner == nullptr ? -1 : exported.owner->rank,
          Row{LedgerKind::kDescriptor, exported.birth, 1, -1, 0});
  }
}

}  // namespace

std::vector<simcuLedgerEntry> ledger_of(Node& node) {
  std::vector<simcuLedgerEntry> entries;
  visit_all(node, [&](int rank, const Row& row) { append(entries, rank, row); });
  std::sort(entries.begin(), entries.end(), [](const simcuLedgerEntry& a, const simcuLedgerEntry& b) {
    return std::tie(a.rank, a.kind, a.ordinal) < std::tie(b.rank, b.kind, b.ordinal);
  });
  return entries;
}

std::vector<simcuLedgerEntry> ledger_of(const Process& process) {
  std::vector<simcuLedgerEntry> entries;
  const auto add = [&](int rank, const Row& row) { append(entries, rank, row); };
  visit_memory(process, add);
  visit_contexts(process, add);
  for (const auto& object : process.node().multicast_objects()) {
    for (const auto& [device, bound] : object->bindings()) {
      for (const auto& [offset, binding] : bound) {
        if (binding.owner == &process) {
          add(process.rank, Row{LedgerKind::kBinding, binding.birth, 1, device, binding.size});
        }
      }
    }
  }
  process.node().descriptors.sweep();
  for (const Exported& exported : process.node().descriptors.all()) {
    if (exported.owner == &process) add(process.rank, Row{LedgerKind::kDescriptor, exported.birth, 1, -1, 0});
  }
  std::sort(entries.begin(), entries.end(), [](const simcuLedgerEntry& a, const simcuLedgerEntry& b) {
    return std::tie(a.kind, a.ordinal) < std::tie(b.kind, b.ordinal);
  });
  return entries;
}

std::size_t ledger_size(Node& node) {
  std::size_t size = 0;
  visit_all(node, [&](int, const Row&) { ++size; });
  return size;
}

void WriteLog::record(std::uint32_t step, int rank, const Stretch& stretch, std::uint64_t size) {
  const Allocation& allocation = *stretch.allocation;
  if (!entries_.empty()) {
    simcuWrite& last = entries_.back();
    if (last.step == step && last.rank == rank && last.allocation == allocation.id &&
        last.offset_bytes + last.size_bytes == stretch.offset) {
      last.size_bytes += size;
      return;
    }
  }
  entries_.push_back({.step = step,
                      .rank = rank,
                      .allocation = allocation.id,
                      .device = allocation.device,
                      .offset_bytes = stretch.offset,
                      .size_bytes = size});
}

}  // namespace allranks::sim
