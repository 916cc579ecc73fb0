// A node: one simulated host with its GPUs, and everything that its virtual processes share.
//
// Threads: with the turn held, except for making and ending a node.
#ifndef ALLRANKS_SIMCUDA_NODE_HPP_
#define ALLRANKS_SIMCUDA_NODE_HPP_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "allocation.hpp"
#include "descriptor.hpp"
#include "device_memory.hpp"
#include "incidents.hpp"
#include "include/simcu.h"
#include "ledger.hpp"
#include "multicast.hpp"
#include "process.hpp"
#include "turnstile.hpp"

namespace allranks::sim {

class Node {
 public:
  explicit Node(const simcuMachine& description);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const simcuMachine machine;

 private:
  // Before all that may hold memory of a device, so that it outlives them.
  std::vector<std::unique_ptr<DeviceMemory>> devices_;

 public:
  std::vector<std::uint64_t> multicast_used;  // bytes charged, per device
  Turnstile turnstile;
  WriteLog writes;
  Incidents incidents;
  DescriptorTable descriptors;

  Process& create_process(int rank, const simcuPlacement& placement);
  void end_process(Process& process);
  // The same with the turn held, while other processes go on: their work is left alone.
  void end_process_among_others(Process& process);
  const std::vector<std::unique_ptr<Process>>& processes() const { return processes_; }

  // Null when the device has no such stretch free.
  std::shared_ptr<PhysicalRange> take_physical(int device, std::uint64_t size);
  std::uint64_t memory_used(int device);
  // As of the last look at exported descriptors.
  std::uint64_t memory_taken(int device) const { return devices_[static_cast<std::size_t>(device)]->used(); }
  std::uint64_t memory_total(int device) const { return devices_[static_cast<std::size_t>(device)]->size(); }
  // Of memory pools and interprocess events.
  std::uint32_t next_serial() { return next_serial_++; }
  std::uint32_t next_allocation_id() { return next_allocation_id_++; }

  std::shared_ptr<MulticastObject> create_multicast(std::uint64_t size, std::size_t device_count,
                                                    unsigned handle_types);
  // Those that are alive.
  std::vector<std::shared_ptr<MulticastObject>> multicast_objects();
  void drop_descriptors_of(const Process& process) { descriptors.drop_of(process); }

  // True in a child process forked after the node was made: nothing of it may be used there.
  bool forked() const;
  std::string check_invariants();

 private:
  std::string check_memory();
  std::string check_charges();

  const unsigned fork_generation_;
  std::vector<std::weak_ptr<MulticastObject>> multicast_;
  std::uint32_t next_allocation_id_ = 0;
  std::uint32_t next_multicast_id_ = 0;
  unsigned next_process_serial_ = 0;
  std::uint32_t next_serial_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
};

Node& node_of(simcuNode handle);
// What simcuLastError answers to the calling thread.
void set_last_error(std::string message);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_NODE_HPP_
