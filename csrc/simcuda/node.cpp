#include "node.hpp"

#include <algorithm>
#include <utility>

namespace allranks::sim {

Node::Node(const simcuMachine& description)
    : machine(description), multicast_used(static_cast<std::size_t>(description.device_count), 0) {
  for (int device = 0; device < machine.device_count; ++device) {
    devices_.push_back(std::make_unique<DeviceMemory>(machine.memory_bytes, machine.allocation_granularity_bytes));
  }
  turnstile.on_unwind = [](Process* process) { process->unwound = true; };
}

Node::~Node() {
  turnstile.drain();
  while (!processes_.empty()) end_process(*processes_.back());
}

Process& Node::create_process(int rank, const simcuPlacement& placement) {
  processes_.push_back(std::make_unique<Process>(*this, rank, placement));
  return *processes_.back();
}

void Node::end_process(Process& process) {
  // Nobody waits for its work any more: let what runs come to its end as unwound.
  for (Context* context : process.contexts()) {
    if (!context->streams->idle()) {
      context->sticky_error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
      turnstile.drain();
      break;
    }
  }
  ThreadState& thread = this_thread();
  if (thread.process == &process) {
    thread.process = nullptr;
    thread.contexts.clear();
  }
  std::erase_if(processes_, [&](const std::unique_ptr<Process>& owned) { return owned.get() == &process; });
}

std::shared_ptr<PhysicalRange> Node::take_physical(int device, std::uint64_t size) {
  DeviceMemory& memory = *devices_[static_cast<std::size_t>(device)];
  std::optional<std::uint64_t> offset = memory.take(size);
  if (!offset && !descriptors.all().empty()) {
    descriptors.sweep();
    offset = memory.take(size);
  }
  return offset ? std::make_shared<PhysicalRange>(memory, *offset, size) : nullptr;
}

std::uint64_t Node::memory_used(int device) {
  descriptors.sweep();
  return devices_[static_cast<std::size_t>(device)]->used();
}

std::shared_ptr<MulticastObject> Node::create_multicast(std::uint64_t size, std::size_t device_count,
                                                        unsigned handle_types) {
  descriptors.sweep();
  std::erase_if(multicast_, [](const std::weak_ptr<MulticastObject>& object) { return object.expired(); });
  auto object = std::make_shared<MulticastObject>(*this, next_multicast_id_++, size, device_count, handle_types);
  multicast_.push_back(object);
  return object;
}

std::vector<std::shared_ptr<MulticastObject>> Node::multicast_objects() {
  std::vector<std::shared_ptr<MulticastObject>> alive;
  for (const std::weak_ptr<MulticastObject>& object : multicast_) {
    if (std::shared_ptr<MulticastObject> held = object.lock()) alive.push_back(std::move(held));
  }
  return alive;
}

std::string Node::check_invariants() {
  std::string broken = turnstile.check_invariants();
  for (const auto& device : devices_) {
    if (broken.empty()) broken = device->check_invariants();
  }
  for (const auto& process : processes_) {
    if (broken.empty()) broken = process->check_invariants();
  }
  for (const std::uint64_t used : multicast_used) {
    if (broken.empty() && used > machine.multicast_capacity_bytes) broken = "more multicast capacity used than there is";
  }
  return broken;
}

Node& node_of(simcuNode handle) { return *reinterpret_cast<Node*>(handle); }

}  // namespace allranks::sim
