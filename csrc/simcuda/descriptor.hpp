// Handles exported as POSIX file descriptors.
//
// The descriptor is real: one end of a socket pair whose other end the node keeps. An import recognises the exported
// end by its inode, whatever number it has by then; a hang-up on the node's end says that its last copy was closed.
// While a copy is open it counts as a reference to the object.
// Threads: with the turn held.
#ifndef ALLRANKS_SIMCUDA_DESCRIPTOR_HPP_
#define ALLRANKS_SIMCUDA_DESCRIPTOR_HPP_

#include <sys/types.h>

#include <memory>
#include <vector>

#include "ledger.hpp"

namespace allranks::sim {

struct Allocation;
class MemoryPool;
class MulticastObject;

struct Exported {
  int kept_end = -1;
  dev_t device = 0;
  ino_t inode = 0;
  std::shared_ptr<Allocation> allocation;
  std::shared_ptr<MulticastObject> multicast;
  std::shared_ptr<MemoryPool> pool;
  const Process* owner = nullptr;
  Birth birth;
};

class DescriptorTable {
 public:
  DescriptorTable() = default;
  ~DescriptorTable();
  DescriptorTable(const DescriptorTable&) = delete;
  DescriptorTable& operator=(const DescriptorTable&) = delete;

  // The descriptor for the caller; -1 when the host has none left.
  int add(Exported exported);
  // Null for a descriptor that is closed, or was not exported here.
  const Exported* find(int descriptor) const;
  // Forgets those whose last copy was closed.
  void sweep();
  void drop_of(const Process& owner);
  const std::vector<Exported>& all() const { return all_; }

 private:
  std::vector<Exported> all_;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_DESCRIPTOR_HPP_
