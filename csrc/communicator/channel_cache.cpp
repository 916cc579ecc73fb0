#include "channel_cache.hpp"

#include <algorithm>
#include <bit>

#include "errors.hpp"

namespace allranks {

namespace {

constexpr SlotMask bit(std::uint32_t slot) { return SlotMask{1} << slot; }

}  // namespace

ChannelCache::Operand ChannelCache::look_up(Region region, bool retain) const {
  Operand operand{.region = std::move(region), .key = {}, .slots = 0};
  if (empty() && !retain) return operand;
  operand.region.retain();
  operand.key = core_.options().policies.channel_cache->key(operand.region.identity());
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot] && slots_[slot]->key() == operand.key) operand.slots |= bit(slot);
  }
  return operand;
}

ChannelCache::Masks ChannelCache::masks() const {
  Masks masks;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot]) continue;
    if (slots_[slot]->in_use()) masks.in_use |= bit(slot);
    if (!slots_[slot]->own().still_mapped()) masks.dead |= bit(slot);
  }
  return masks;
}

ChannelCache::Connections ChannelCache::decide(const Step& step, const Finding& finding,
                                               const std::vector<SlotMask>& slots) {
  Masks mine;
  const Finding found = finding ? finding : attempt([&] { mine = masks(); });
  SlotMask evictable = 0;
  const auto exchange = [&](const std::vector<SlotMask>& masks_of_operands) {
    Bytes payload = pack(mine);
    for (const SlotMask mask : masks_of_operands) append(payload, mask);
    std::vector<std::vector<SlotMask>> everybody;
    Masks all;
    for (const Bytes& theirs : core_.agreement().agree(step, found, payload)) {
      Reader reader(theirs);
      const auto heard = reader.next<Masks>();
      all.in_use |= heard.in_use;
      all.dead |= heard.dead;
      std::vector<SlotMask>& row = everybody.emplace_back();
      for (std::size_t i = 0; i < slots.size(); ++i) row.push_back(reader.next<SlotMask>());
    }
    evictable = all.dead & ~all.in_use;
    return everybody;
  };
  const std::vector<SlotMask> agreed = core_.options().policies.channel_cache->decide(slots, exchange);
  // A policy that asked nobody has told nobody either.
  if (found) Agreement::rethrow(core_.rank(), step, *found);

  Connections connections;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const SlotMask hits = i < agreed.size() ? agreed[i] : 0;
    if (hits == 0) {
      connections.push_back(nullptr);
      continue;
    }
    const auto slot = static_cast<std::uint32_t>(std::countr_zero(hits));
    last_used_[slot] = ++uses_;
    connections.push_back(slots_[slot]);
    evictable &= ~bit(slot);
  }
  evict(evictable);
  return connections;
}

std::shared_ptr<Connection> ChannelCache::create(Step step, const std::string& name, Operand operand) {
  step.phase = 1;
  ExportedMemory exported;
  Bytes payload;
  const Finding export_finding = attempt([&] {
    exported = export_region(core_.cleanup(), name, operand.region);
    append(payload, masks());
    append_bytes(payload, exported.description);
  });
  const std::vector<Bytes> payloads = core_.agreement().agree(step, export_finding, payload);

  step.phase = 2;
  SlotMask in_use = 0;
  std::vector<RegisteredMemory> memory;
  std::uint32_t slot = 0;
  const Finding import_finding = attempt([&] {
    memory.reserve(payloads.size());
    for (std::size_t rank = 0; rank < payloads.size(); ++rank) {
      Reader reader(payloads[rank]);
      in_use |= reader.next<Masks>().in_use;
      const Bytes description = reader.next_bytes();
      if (static_cast<int>(rank) == core_.rank()) {
        memory.emplace_back(operand.region.address(), operand.region.size());
      } else {
        memory.emplace_back(core_.cleanup(), core_.device(), description);
      }
    }
    slot = choose_slot(in_use);
    core_.scratch().clear_slot(core_.driver(), slot);
  });
  core_.agreement().agree(step, import_finding);
  evict(bit(slot));
  last_used_[slot] = ++uses_;
  slots_[slot] = std::make_shared<Connection>(created_++, slot, std::move(operand.key), std::move(operand.region),
                                              std::move(memory));
  return slots_[slot];
}

std::uint32_t ChannelCache::choose_slot(SlotMask in_use) const {
  const std::uint32_t capacity = core_.options().cache_capacity;
  std::uint32_t oldest = capacity;
  for (std::uint32_t slot = 0; slot < capacity; ++slot) {
    if (!slots_[slot]) return slot;
    if ((in_use & bit(slot)) != 0) continue;
    if (oldest == capacity || last_used_[slot] < last_used_[oldest]) oldest = slot;
  }
  if (oldest == capacity) {
    throw UsageError("cache_capacity=" + std::to_string(capacity) + ": every cached connection is in use; close some");
  }
  return oldest;
}

void ChannelCache::evict(SlotMask slots) {
  for (std::uint32_t slot = 0; slots != 0 && slot < slots_.size(); ++slot) {
    if ((slots & bit(slot)) == 0 || !slots_[slot]) continue;
    slots_[slot]->reset();
    slots_[slot] = nullptr;
  }
}

std::size_t ChannelCache::entry_count() const {
  return static_cast<std::size_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const auto& slot) { return slot != nullptr; }));
}

void ChannelCache::clear() noexcept {
  for (std::shared_ptr<Connection>& slot : slots_) {
    if (slot) slot->reset();
    slot = nullptr;
  }
}

}  // namespace allranks
