// One entry of the channel cache: a region of every rank, each mapped by each, under a number that all ranks share.
//
// Keeps this rank's own allocations retained, so that their handles stay theirs. Threads: those of the rank.
#ifndef ALLRANKS_COMMUNICATOR_CONNECTION_HPP_
#define ALLRANKS_COMMUNICATOR_CONNECTION_HPP_

#include <string>
#include <utility>
#include <vector>

#include "registered_memory.hpp"
#include "semaphore.hpp"

namespace allranks {

class Connection {
 public:
  // `number`: how many connections were made before, the same on all ranks.
  Connection(std::uint32_t number, std::uint32_t slot, std::string key, Region own,
             std::vector<RegisteredMemory> memory)
      : number_(number),
        slot_(slot),
        key_(std::move(key)),
        own_(std::move(own)),
        memory_(std::move(memory)),
        semaphores_(memory_.size(), Semaphore(number + 1)) {}

  std::uint32_t number() const { return number_; }
  std::uint32_t slot() const { return slot_; }
  const std::string& key() const { return key_; }
  const Region& own() const { return own_; }
  const RegisteredMemory& memory(int rank) const { return memory_[static_cast<std::size_t>(rank)]; }
  Semaphore& semaphore(int peer) { return semaphores_[static_cast<std::size_t>(peer)]; }

  // Channels that are open on it.
  void add_user() { ++users_; }
  void remove_user() { --users_; }
  bool in_use() const { return users_ > 0; }

  bool alive() const { return alive_; }
  // Unmaps and releases everything.
  void reset() noexcept {
    alive_ = false;
    memory_.clear();
    own_.release();
  }

 private:
  const std::uint32_t number_;
  const std::uint32_t slot_;
  const std::string key_;
  Region own_;
  std::vector<RegisteredMemory> memory_;
  std::vector<Semaphore> semaphores_;
  int users_ = 0;
  bool alive_ = true;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_CONNECTION_HPP_
