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

void append_memory(std::vector<simcuLedgerEntry>& entries, const Process& process) {
  for (const auto& [value, handle] : process.handles) {
    const bool multicast = handle.multicast != nullptr;
    append(entries, process.rank,
           {multicast ? LedgerKind::kMulticast : LedgerKind::kAllocation, handle.birth, handle.references,
            multicast ? -1 : handle.allocation->device, multicast ? handle.multicast->size : handle.allocation->size});
  }
  for (const auto& [address, reservation] : process.space.reservations) {
    if (!reservation.internal) {
      append(entries, process.rank, {LedgerKind::kReservation, reservation.birth, 1, -1, reservation.size});
    }
  }
  for (const auto& [address, mapping] : process.space.mappings) {
    append(entries, process.rank,
           {mapping.plain ? LedgerKind::kPlain : LedgerKind::kMapping, mapping.birth, 1,
            mapping.allocation ? mapping.allocation->device : -1, mapping.size});
  }
}

void append_contexts(std::vector<simcuLedgerEntry>& entries, const Process& process) {
  for (const Context* context : process.contexts()) {
    append(entries, process.rank, {LedgerKind::kContext, context->birth, context->retains, context->device, 0});
    for (const auto& [handle, stream] : context->streams->created()) {
      append(entries, process.rank, {LedgerKind::kStream, stream->birth, 1, context->device, 0});
    }
    for (const auto& [handle, event] : context->events->all()) {
      append(entries, process.rank, {LedgerKind::kEvent, event->birth, 1, context->device, 0});
    }
    for (const auto& [handle, module] : context->modules->all()) {
      append(entries, process.rank, {LedgerKind::kModule, module.birth, 1, context->device, 0});
    }
  }
}

}  // namespace

std::vector<simcuLedgerEntry> ledger_of(Node& node) {
  node.descriptors.sweep();
  std::vector<simcuLedgerEntry> entries;
  for (const auto& process : node.processes()) {
    append_memory(entries, *process);
    append_contexts(entries, *process);
  }
  for (const auto& object : node.multicast_objects()) {
    for (const auto& [device, bound] : object->bindings()) {
      for (const auto& [offset, binding] : bound) {
        append(entries, binding.owner->rank, {LedgerKind::kBinding, binding.birth, 1, device, binding.size});
      }
    }
  }
  for (const Exported& exported : node.descriptors.all()) {
    append(entries, exported.owner == nullptr ? -1 : exported.owner->rank,
           {LedgerKind::kDescriptor, exported.birth, 1, -1, 0});
  }
  std::sort(entries.begin(), entries.end(), [](const simcuLedgerEntry& a, const simcuLedgerEntry& b) {
    return std::tie(a.rank, a.kind, a.ordinal) < std::tie(b.rank, b.kind, b.ordinal);
  });
  return entries;
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
