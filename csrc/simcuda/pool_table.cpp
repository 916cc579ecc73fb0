// The pools of a process, by handle and by device.
#include <algorithm>
#include <utility>

#include "memory_pool.hpp"
#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

constexpr std::uint64_t kHandleTag = 0xb700'0000'0000ull;

}  // namespace

PoolTable::~PoolTable() {
  for (const std::shared_ptr<MemoryPool>& pool : own_) pool->abandon();
}

CUmemoryPool PoolTable::add(Entry entry) {
  const std::uint64_t handle = kHandleTag | (next_handle_++ << 4);
  if (!entry.imported) own_.push_back(entry.pool);
  entries_.emplace(handle, std::move(entry));
  return reinterpret_cast<CUmemoryPool>(handle);
}

CUmemoryPool PoolTable::default_of(int device) {
  CUmemoryPool& handle = defaults_[device];
  if (handle == nullptr) {
    handle = add({.pool = std::make_shared<MemoryPool>(process_, process_.node().next_serial(),
                                                       MemoryPool::Properties{.device = device, .is_default = true})});
  }
  return handle;
}

CUmemoryPool PoolTable::current_of(int device) {
  const auto found = current_.find(device);
  return found == current_.end() ? default_of(device) : found->second;
}

void PoolTable::set_current(int device, CUmemoryPool pool) { current_[device] = pool; }

CUmemoryPool PoolTable::create(const MemoryPool::Properties& properties) {
  forget_unused();
  return add({.pool = std::make_shared<MemoryPool>(process_, process_.node().next_serial(), properties),
              .birth = process_.birth(LedgerKind::kPool)});
}

CUmemoryPool PoolTable::import(std::shared_ptr<MemoryPool> pool) {
  Entry entry{.pool = std::move(pool), .imported = true, .birth = process_.birth(LedgerKind::kPool)};
  entry.imported_rights.read.set(static_cast<std::size_t>(entry.pool->properties.device));
  entry.imported_rights.write = entry.imported_rights.read;
  return add(std::move(entry));
}

PoolTable::Entry* PoolTable::find(CUmemoryPool handle) {
  const auto found = entries_.find(reinterpret_cast<std::uint64_t>(handle));
  return found == entries_.end() ? nullptr : &found->second;
}

CUmemoryPool PoolTable::handle_of(const MemoryPool& pool) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const auto& entry) { return entry.second.pool.get() == &pool; });
  return found == entries_.end() ? nullptr : reinterpret_cast<CUmemoryPool>(found->first);
}

// [cuda.h] What was taken from the pool stays, and the pool's resources go with the last of it; the device's own pool
// takes the place of the current one.
void PoolTable::destroy(CUmemoryPool handle) {
  std::erase_if(current_, [&](const auto& entry) { return entry.second == handle; });
  const auto found = entries_.find(reinterpret_cast<std::uint64_t>(handle));
  const Entry entry = std::move(found->second);
  entries_.erase(found);
  if (entry.imported) return;
  entry.pool->destroyed = true;
  entry.pool->synchronised();
  forget_unused();
}

void PoolTable::forget_unused() {
  std::erase_if(own_, [](const std::shared_ptr<MemoryPool>& pool) { return pool->destroyed && !pool->in_use(); });
}

// [assumption] The pools that a process made on a device end with its last context there; the device's own one gives
// back what is not in use.
void PoolTable::end_device(int device) {
  std::vector<CUmemoryPool> ending;
  for (const auto& [handle, entry] : entries_) {
    if (entry.pool->properties.device == device && !entry.pool->properties.is_default) {
      ending.push_back(reinterpret_cast<CUmemoryPool>(handle));
    }
  }
  for (CUmemoryPool handle : ending) destroy(handle);
  current_.erase(device);
  for (const std::shared_ptr<MemoryPool>& pool : own_) {
    if (pool->properties.device == device) {
      pool->synchronised();
      pool->shrink_to(0);
    }
  }
}

void PoolTable::open_to_rights(Entry& entry) {
  const Origin origin = entry.imported ? Origin::kImported : Origin::kPool;
  for (auto& [address, mapping] : process_.space.mappings) {
    if (mapping.origin == origin && mapping.pool == entry.pool) mapping.rights = entry.rights();
  }
  ++process_.translation_generation;
}

void PoolTable::synchronised() {
  for (const std::shared_ptr<MemoryPool>& pool : own_) pool->synchronised();
}

std::vector<const PhysicalRange*> PoolTable::ranges(int device) const {
  std::vector<const PhysicalRange*> all;
  for (const std::shared_ptr<MemoryPool>& pool : own_) {
    if (pool->properties.device != device) continue;
    const auto of_pool = pool->ranges();
    all.insert(all.end(), of_pool.begin(), of_pool.end());
  }
  return all;
}

std::string PoolTable::check_invariants() const {
  std::map<const MemoryPool*, std::size_t> mapped;
  for (const auto& [address, mapping] : process_.space.mappings) {
    if (mapping.origin == Origin::kPool) ++mapped[mapping.pool.get()];
  }
  for (const std::shared_ptr<MemoryPool>& pool : own_) {
    if (std::string broken = pool->check_invariants(mapped[pool.get()]); !broken.empty()) return broken;
    mapped.erase(pool.get());
  }
  if (!mapped.empty()) return "memory is mapped of a pool that the process does not have";
  for (const auto& [device, handle] : current_) {
    const auto found = entries_.find(reinterpret_cast<std::uint64_t>(handle));
    if (found == entries_.end() || found->second.imported || found->second.pool->properties.device != device) {
      return "a device's current memory pool is none of its own";
    }
  }
  return {};
}

}  // namespace allranks::sim
