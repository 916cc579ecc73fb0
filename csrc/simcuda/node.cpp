#include "node.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

namespace allranks::sim {

namespace {

// How many forks lie between the process that loaded the library and this one.
std::atomic<unsigned> fork_generation{0};

unsigned watch_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++fork_generation; });
  static_cast<void>(registered);
  return fork_generation.load(std::memory_order_relaxed);
}

}  // namespace

Node::Node(const simcuMachine& description)
    : machine(description),
      multicast_used(static_cast<std::size_t>(description.device_count), 0),
      fork_generation_(watch_forks()) {
  for (int device = 0; device < machine.device_count; ++device) {
    devices_.push_back(std::make_unique<DeviceMemory>(machine.memory_bytes, machine.allocation_granularity_bytes));
  }
  turnstile.on_unwind = [](Process* process) { process->unwound = true; };
}

Node::~Node() {
  turnstile.drain();
  while (!processes_.empty()) end_process(*processes_.back());
}

bool Node::forked() const { return fork_generation_ != fork_generation.load(std::memory_order_relaxed); }

Process& Node::create_process(int rank, const simcuPlacement& placement) {
  processes_.push_back(std::make_unique<Process>(*this, next_process_serial_++, rank, placement));
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

void Node::end_process_among_others(Process& process) {
  for (Context* context : process.contexts()) context->sticky_error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  turnstile.end_tasks_of(process);
  end_process(process);
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
  return memory_taken(device);
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

// The bytes taken on each device are those of the ranges that something alive holds.
std::string Node::check_memory() {
  std::vector<std::uint64_t> held(devices_.size(), 0);
  std::set<const PhysicalRange*> seen;
  const auto hold_range = [&](const PhysicalRange* range, int device) {
    if (seen.insert(range).second) held[static_cast<std::size_t>(device)] += range->size();
  };
  const auto hold = [&](const std::shared_ptr<Allocation>& allocation) {
    if (allocation && allocation->range) hold_range(allocation->range.get(), allocation->device);
  };
  for (const auto& process : processes_) {
    for (const auto& [value, handle] : process->handles) hold(handle.allocation);
    for (const auto& [address, mapping] : process->space.mappings) hold(mapping.allocation);
    for (int device = 0; device < machine.device_count; ++device) {
      for (const PhysicalRange* range : process->pools.ranges(device)) hold_range(range, device);
    }
  }
  for (const auto& object : multicast_objects()) {
    for (const auto& [device, bound] : object->bindings()) {
      for (const auto& [offset, binding] : bound) hold(binding.allocation);
    }
  }
  for (const Exported& exported : descriptors.all()) hold(exported.allocation);
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    if (devices_[device]->used() != held[device]) {
      return "device " + std::to_string(device) + " has " + std::to_string(devices_[device]->used()) +
             " bytes taken, and " + std::to_string(held[device]) + " held";
    }
  }
  return {};
}

std::string Node::check_charges() {
  std::vector<std::uint64_t> charged(multicast_used.size(), 0);
  for (const auto& object : multicast_objects()) {
    if (std::string broken = object->check_invariants(); !broken.empty()) return broken;
    for (const auto& [device, bytes] : object->charged()) charged[static_cast<std::size_t>(device)] += bytes;
  }
  if (charged != multicast_used) return "multicast capacity in use is not what the objects are charged for";
  for (const std::uint64_t used : multicast_used) {
    if (used > machine.multicast_capacity_bytes) return "more multicast capacity is in use than there is";
  }
  return {};
}

std::string Node::check_invariants() {
  descriptors.sweep();
  std::string broken = turnstile.check_invariants();
  for (const auto& device : devices_) {
    if (broken.empty()) broken = device->check_invariants();
  }
  for (const auto& process : processes_) {
    if (broken.empty()) broken = process->check_invariants();
  }
  if (broken.empty()) broken = check_memory();
  return broken.empty() ? check_charges() : broken;
}

Node& node_of(simcuNode handle) { return *reinterpret_cast<Node*>(handle); }

}  // namespace allranks::sim
