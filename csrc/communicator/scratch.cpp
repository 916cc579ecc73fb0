#include "scratch.hpp"

#include "properties.hpp"

namespace allranks {

Scratch::Scratch(Cleanup& cleanup, CUdevice device, std::uint64_t wanted_bytes, std::uint32_t block_count) {
  const Driver& driver = cleanup.driver();
  const CUmemAllocationProp properties = allocation_properties(device, true);
  std::size_t granularity = 0;
  driver.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  const std::size_t size = round_up(wanted_bytes, granularity);
  AllocationHandle handle = 0;
  driver.cuMemCreate(&handle, size, &properties, 0);
  memory_ = PhysicalMemory(cleanup, handle);
  own_ = MappedRange(cleanup, device, {{handle, size}});
  // Peers signal into the control page as soon as they know it. Only what will be used is cleared, since every page
  // that is touched costs.
  driver.cuMemsetD8(own_.address(), 0, offsetof(device::Control, barrier) + 8ull * device::kMaxRanks * block_count);
  driver.cuStreamSynchronize(nullptr);
}

void Scratch::clear_slot(const Driver& driver, std::uint32_t slot) {
  const std::uint64_t bit = std::uint64_t{1} << slot;
  if ((cleared_slots_ & bit) != 0) return;
  const std::uint64_t row = 8ull * device::kMaxRanks;
  driver.cuMemsetD8(address() + offsetof(device::Control, semaphore) + slot * row, 0, row);
  driver.cuStreamSynchronize(nullptr);
  cleared_slots_ |= bit;
}

void Scratch::import_peers(Cleanup& cleanup, CUdevice device, int own_rank, const std::vector<Bytes>& descriptions) {
  std::vector<RegisteredMemory> peers;
  peers.reserve(descriptions.size());
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    if (static_cast<int>(rank) == own_rank) {
      peers.emplace_back(own_.address(), own_.size());
    } else {
      peers.emplace_back(cleanup, device, descriptions[rank]);
    }
  }
  peers_ = std::move(peers);
}

void Scratch::reset() noexcept {
  peers_.clear();
  own_.reset();
  memory_.reset();
}

}  // namespace allranks
