#include "address_space.hpp"

#include <algorithm>

#include "multicast.hpp"

namespace allranks::sim {

namespace {

CUdeviceptr round_up(CUdeviceptr value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

template <typename Map>
auto containing(Map& map, CUdeviceptr address) {
  auto place = map.upper_bound(address);
  if (place == map.begin()) return map.end();
  --place;
  return address < place->first + place->second.size ? place : map.end();
}

}  // namespace

AddressSpace::AddressSpace(int rule, std::uint64_t base_offset_bytes)
    : rule_(rule), base_(kLowestAddress + base_offset_bytes), never_used_(base_) {}

bool AddressSpace::is_free(CUdeviceptr address, std::uint64_t size) const {
  if (address < kLowestAddress || address >= kHighestAddress || size > kHighestAddress - address) return false;
  const auto after = reservations.lower_bound(address);
  if (after != reservations.end() && after->first < address + size) return false;
  return after == reservations.begin() || std::prev(after)->first + std::prev(after)->second.size <= address;
}

std::optional<CUdeviceptr> AddressSpace::lowest_fit(std::uint64_t size, std::uint64_t alignment,
                                                    CUdeviceptr from) const {
  CUdeviceptr candidate = round_up(from, alignment);
  for (auto next = reservations.begin(); next != reservations.end(); ++next) {
    const CUdeviceptr end = next->first + next->second.size;
    if (end <= candidate) continue;
    if (next->first >= candidate + size) break;
    candidate = round_up(end, alignment);
  }
  if (candidate + size > kHighestAddress) return std::nullopt;
  return candidate;
}

std::optional<CUdeviceptr> AddressSpace::highest_fit(std::uint64_t size, std::uint64_t alignment) const {
  CUdeviceptr limit = kHighestAddress - (base_ - kLowestAddress);
  for (auto next = reservations.rbegin(); next != reservations.rend(); ++next) {
    if (next->first >= limit) continue;
    const CUdeviceptr candidate = (limit - size) / alignment * alignment;
    if (candidate >= next->first + next->second.size) return candidate;
    limit = next->first;
  }
  const CUdeviceptr candidate = (limit - size) / alignment * alignment;
  if (candidate < kLowestAddress) return std::nullopt;
  return candidate;
}

CUdeviceptr AddressSpace::find_room(std::uint64_t size, std::uint64_t alignment, CUdeviceptr fixed) {
  if (fixed == 0) fixed = wish_;
  wish_ = 0;
  std::optional<CUdeviceptr> found;
  if (fixed != 0 && fixed % alignment == 0 && is_free(fixed, size)) {
    found = fixed;
  } else if (rule_ == SIMCU_PLACE_HIGH) {
    found = highest_fit(size, alignment);
  } else {
    found = lowest_fit(size, alignment, rule_ == SIMCU_PLACE_NEVER_REUSE ? never_used_ : base_);
  }
  if (!found) return 0;
  if (rule_ != SIMCU_PLACE_HIGH) never_used_ = std::max(never_used_, *found + size);
  return *found;
}

std::map<CUdeviceptr, Reservation>::iterator AddressSpace::reservation_at(CUdeviceptr address) {
  return containing(reservations, address);
}

std::map<CUdeviceptr, Mapping>::iterator AddressSpace::mapping_at(CUdeviceptr address) {
  return containing(mappings, address);
}

std::map<CUdeviceptr, Mapping>::const_iterator AddressSpace::mapping_at(CUdeviceptr address) const {
  return containing(mappings, address);
}

bool AddressSpace::mapped_within(CUdeviceptr address, std::uint64_t size) const {
  if (mapping_at(address) != mappings.end()) return true;
  const auto next = mappings.lower_bound(address);
  return next != mappings.end() && next->first < address + size;
}

bool AddressSpace::freed_within(CUdeviceptr address, std::uint64_t size) const {
  for (auto mapping = mapping_at(address); mapping != mappings.end() && mapping->first < address + size; ++mapping) {
    if (mapping->second.freed) return true;
  }
  return false;
}

bool AddressSpace::is_page_locked(CUdeviceptr address, std::uint64_t size) const {
  const auto found = mapping_at(address);
  return found != mappings.end() && found->second.origin == Origin::kHost &&
         size <= found->second.size - (address - found->first);
}

bool AddressSpace::mapped_throughout(CUdeviceptr address, std::uint64_t size) const {
  CUdeviceptr at = address;
  while (at < address + size) {
    const auto mapping = mapping_at(at);
    if (mapping == mappings.end()) return false;
    at = mapping->first + mapping->second.size;
  }
  return true;
}

Translation AddressSpace::translate(CUdeviceptr address, int device, bool for_writing) const {
  const auto found = mapping_at(address);
  if (found == mappings.end()) return {};
  const auto& [begin, mapping] = *found;
  Translation there{.size = begin + mapping.size - address, .begin = begin, .end = begin + mapping.size};
  if (device >= 0) {
    const auto& rights = for_writing ? mapping.rights.write : mapping.rights.read;
    if (!rights.test(static_cast<std::size_t>(device))) {
      there.reach = Reach::kNoAccess;
      return there;
    }
  }
  const std::uint64_t offset = address - begin;
  if (mapping.multicast) {
    there.reach = Reach::kMulticast;
    there.multicast = mapping.multicast.get();
    there.multicast_offset = offset;
  } else {
    there.reach = Reach::kMemory;
    there.stretch = {.allocation = mapping.allocation,
                     .offset = offset,
                     .size = there.size,
                     .host = mapping.allocation->host() + offset};
  }
  return there;
}

std::string AddressSpace::check_invariants() const {
  CUdeviceptr last_end = 0;
  for (const auto& [begin, mapping] : mappings) {
    if (begin < last_end) return "mappings overlap";
    last_end = begin + mapping.size;
    if (!mapping.multicast == !mapping.allocation) return "a mapping leads to nothing, or to two things";
    if (mapping.origin == Origin::kHost) continue;
    const auto holder = containing(reservations, begin);
    if (holder == reservations.end() || last_end > holder->first + holder->second.size) {
      return "a mapping lies outside of every reservation";
    }
  }
  return {};
}

}  // namespace allranks::sim
