#include "multicast.hpp"

#include <algorithm>

#include "node.hpp"

namespace allranks::sim {

namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

MulticastObject::MulticastObject(Node& node, std::uint32_t object_id, std::uint64_t size_bytes,
                                 std::size_t device_count, unsigned types)
    : id(object_id), size(size_bytes), handle_types(types), node_(node), device_count_(device_count) {}

MulticastObject::~MulticastObject() {
  for (const auto& [device, bound] : bindings_) {
    for (const auto& [offset, binding] : bound) --binding.allocation->bindings;
  }
  for (const auto& [device, bytes] : charged_) node_.multicast_used[static_cast<std::size_t>(device)] -= bytes;
}

bool MulticastObject::charge(int device, std::uint64_t bytes) {
  std::uint64_t& used = node_.multicast_used[static_cast<std::size_t>(device)];
  if (bytes > node_.machine.multicast_capacity_bytes - used) return false;
  used += bytes;
  charged_[device] += bytes;
  return true;
}

void MulticastObject::uncharge(int device, std::uint64_t bytes) {
  node_.multicast_used[static_cast<std::size_t>(device)] -= bytes;
  charged_[device] -= bytes;
}

// [assumption] Which devices a new object is charged on when none has been added: every device of the fabric.
CUresult MulticastObject::charge_creation() {
  if (size > kHighestAddress - kLowestAddress) return CUDA_ERROR_OUT_OF_MEMORY;  // no process could map it
  if (node_.machine.multicast_charge != SIMCU_CHARGE_AT_CREATE) return CUDA_SUCCESS;
  const std::uint64_t bytes = round_up(size, node_.machine.multicast_charge_rounding_bytes);
  for (int device = 0; device < node_.machine.device_count; ++device) {
    if (!charge(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;  // the destructor gives back the others
  }
  return CUDA_SUCCESS;
}

// [cuda.h] A team has as many devices as the object was created for. [assumption] A device joins once.
CUresult MulticastObject::add_device(int device) {
  if (has(device) || complete()) return CUDA_ERROR_INVALID_VALUE;
  if (node_.machine.multicast_charge == SIMCU_CHARGE_AT_ADD_DEVICE &&
      !charge(device, round_up(size, node_.machine.multicast_charge_rounding_bytes))) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  devices_.push_back(device);
  bindings_.try_emplace(device);
  return CUDA_SUCCESS;
}

// [assumption] Bindings of one device do not overlap.
CUresult MulticastObject::bind(int device, std::uint64_t offset, Binding binding) {
  std::map<std::uint64_t, Binding>& bound = bindings_.at(device);
  const auto after = bound.lower_bound(offset);
  if (after != bound.end() && after->first < offset + binding.size) return CUDA_ERROR_INVALID_VALUE;
  if (after != bound.begin() && std::prev(after)->first + std::prev(after)->second.size > offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (node_.machine.multicast_charge == SIMCU_CHARGE_AT_BIND &&
      !charge(device, round_up(binding.size, node_.machine.multicast_charge_rounding_bytes))) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++binding.allocation->bindings;
  bound.emplace(offset, std::move(binding));
  return CUDA_SUCCESS;
}

void MulticastObject::erase(int device, std::map<std::uint64_t, Binding>::iterator binding) {
  --binding->second.allocation->bindings;
  if (node_.machine.multicast_charge == SIMCU_CHARGE_AT_BIND) {
    uncharge(device, round_up(binding->second.size, node_.machine.multicast_charge_rounding_bytes));
  }
  bindings_.at(device).erase(binding);
}

// [cuda.h] Offset and size have to be those of the bind. [assumption, switch] Memory freed first may make it fail
// (pytorch/pytorch#163750); the binding is gone all the same.
MulticastObject::Unbound MulticastObject::unbind(int device, std::uint64_t offset, std::uint64_t bytes) {
  if (!has(device)) return {.result = CUDA_ERROR_INVALID_VALUE};
  std::map<std::uint64_t, Binding>& bound = bindings_.at(device);
  const auto found = bound.find(offset);
  if (found == bound.end() || found->second.size != bytes) return {.result = CUDA_ERROR_INVALID_VALUE};
  const bool freed = freed_but_bound(found->second.allocation);
  erase(device, found);
  const bool reported = freed && node_.machine.binding_on_free == SIMCU_UNBIND_REPORTS_ERROR;
  return {.result = reported ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS, .memory_was_freed = freed};
}

void MulticastObject::forget(const Process& owner) {
  for (auto& [device, bound] : bindings_) {
    for (auto binding = bound.begin(); binding != bound.end();) {
      const auto next = std::next(binding);
      if (binding->second.owner == &owner) erase(device, binding);
      binding = next;
    }
  }
}

const Binding* MulticastObject::binding_at(int device, std::uint64_t offset, std::uint64_t* begin) const {
  const auto& bound = bindings_.at(device);
  auto place = bound.upper_bound(offset);
  if (place == bound.begin()) return nullptr;
  --place;
  *begin = place->first;
  return offset < place->first + place->second.size ? &place->second : nullptr;
}

bool MulticastObject::stretches_at(std::uint64_t offset, std::uint64_t bytes, std::vector<Stretch>& one_per_device,
                                   std::string& missing) const {
  one_per_device.clear();
  for (const int device : devices_) {
    std::uint64_t begin = 0;
    const Binding* const binding = binding_at(device, offset, &begin);
    if (binding == nullptr) {
      missing = "device " + std::to_string(device) + " has nothing bound at offset " + std::to_string(offset) +
                " of multicast object " + std::to_string(id);
      return false;
    }
    const std::uint64_t inside = offset - begin;
    const std::uint64_t allocation_offset = binding->allocation_offset + inside;
    one_per_device.push_back({.allocation = binding->allocation,
                              .offset = allocation_offset,
                              .size = std::min(bytes, binding->size - inside),
                              .host = binding->allocation->host() + allocation_offset});
  }
  if (!complete()) missing = "not every device has been added to multicast object " + std::to_string(id);
  return complete();
}

std::uint64_t MulticastObject::uniform_from(std::uint64_t offset, std::uint64_t bytes) const {
  std::uint64_t uniform = bytes;
  for (const int device : devices_) {
    const auto& bound = bindings_.at(device);
    std::uint64_t begin = 0;
    if (const Binding* const binding = binding_at(device, offset, &begin)) {
      uniform = std::min(uniform, begin + binding->size - offset);
    }
    const auto next = bound.upper_bound(offset);
    if (next != bound.end()) uniform = std::min(uniform, next->first - offset);
  }
  return uniform;
}

std::string MulticastObject::check_invariants() const {
  if (devices_.size() > device_count_) return "a multicast object has more devices than it was made for";
  for (const auto& [device, bound] : bindings_) {
    std::uint64_t last_end = 0;
    for (const auto& [offset, binding] : bound) {
      if (offset < last_end) return "bindings of a multicast object overlap";
      last_end = offset + binding.size;
      if (last_end > size) return "a binding lies outside of its multicast object";
      if (binding.allocation->device != device) return "a binding is filed under the wrong device";
      if (binding.allocation->bindings < 1) return "an allocation miscounts its bindings";
    }
  }
  return {};
}

CUresult await_complete(Process& process, const MulticastObject& object, const char* call) {
  if (object.complete()) return CUDA_SUCCESS;
  Node& node = process.node();
  const WaitSpec spec{.ready = [&] { return object.complete(); },
                      // Ranks whose devices are not in the team yet: those that somebody may be waiting for.
                      .waits_for =
                          [&](std::vector<int>& ranks) {
                            for (const auto& other : node.processes()) {
                              for (const Context* context : other->contexts()) {
                                if (!object.has(context->device)) ranks.push_back(other->rank);
                              }
                            }
                          },
                      .key = &object,
                      .call = call,
                      .object = "multicast object " + std::to_string(object.id)};
  return node.turnstile.wait(spec) == WaitResult::kReady ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
}

}  // namespace allranks::sim
