// Multicast objects: a team of devices, and for each of them which memory is bound at which offset.
//
// Nothing here has been run on hardware. Each rule names its source: [cuda.h] for the header's text, [use] for how
// NCCL and MSCCL++ depend on it, [assumption] for what no text says; assumptions that matter are switches of the
// simulated machine (docs/multicast.md).
//
// Threads: with the turn held.
#ifndef ALLRANKS_SIMCUDA_MULTICAST_HPP_
#define ALLRANKS_SIMCUDA_MULTICAST_HPP_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "address_space.hpp"
#include "ledger.hpp"

namespace allranks::sim {

struct Binding {
  std::uint64_t size = 0;
  std::shared_ptr<Allocation> allocation;
  std::uint64_t allocation_offset = 0;
  Process* owner = nullptr;
  Birth birth;
};

class MulticastObject {
 public:
  MulticastObject(Node& node, std::uint32_t id, std::uint64_t size, std::size_t device_count, unsigned handle_types);
  ~MulticastObject();
  MulticastObject(const MulticastObject&) = delete;
  MulticastObject& operator=(const MulticastObject&) = delete;

  // OUT_OF_MEMORY when the fabric has no room for what creating charges.
  CUresult charge_creation();
  CUresult add_device(int device);
  bool complete() const { return devices_.size() == device_count_; }
  bool has(int device) const { return bindings_.contains(device); }

  CUresult bind(int device, std::uint64_t offset, Binding binding);
  struct Unbound {
    CUresult result = CUDA_SUCCESS;
    bool memory_was_freed = false;  // before, with only bindings left
  };
  // INVALID_VALUE unless (offset, size) are those of a binding of the device.
  Unbound unbind(int device, std::uint64_t offset, std::uint64_t size);
  // Takes out every binding that the process made.
  void forget(const Process& owner);

  // For each device the stretch bound at the offset, in the order devices were added; a stretch may be shorter than
  // `size`. False when some device has nothing bound there; `missing` says which.
  bool stretches_at(std::uint64_t offset, std::uint64_t size, std::vector<Stretch>& one_per_device,
                    std::string& missing) const;
  // How far from the offset on every device has the same binding or the same hole; at most `size`.
  std::uint64_t uniform_from(std::uint64_t offset, std::uint64_t size) const;

  // Bytes charged on each device.
  const std::map<int, std::uint64_t>& charged() const { return charged_; }
  std::string check_invariants() const;

  const std::vector<int>& devices() const { return devices_; }
  const std::map<int, std::map<std::uint64_t, Binding>>& bindings() const { return bindings_; }

  const std::uint32_t id;  // unique in the node, in order of creation
  const std::uint64_t size;
  const unsigned handle_types;

 private:
  const Binding* binding_at(int device, std::uint64_t offset, std::uint64_t* begin) const;
  void erase(int device, std::map<std::uint64_t, Binding>::iterator binding);
  bool charge(int device, std::uint64_t bytes);
  void uncharge(int device, std::uint64_t bytes);

  Node& node_;
  const std::size_t device_count_;
  std::vector<int> devices_;
  std::map<int, std::map<std::uint64_t, Binding>> bindings_;
  std::map<int, std::uint64_t> charged_;
};

// Waits until every device of the team has been added. LAUNCH_TIMEOUT: that never happens.
CUresult await_complete(Process& process, const MulticastObject& object, const char* call);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_MULTICAST_HPP_
