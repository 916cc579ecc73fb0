// How ranks talk before and beside the device: small messages between hosts' threads or processes.
//
// Not for data. Every wait has a deadline and names the ranks that it still waits for. A rank that gives up waiting, or
// leaves, makes the others' waits for it end with PeerLost, so a bootstrap is whole for all ranks or for none.
//
// Threads: one rank's object is used by one thread at a time.
#ifndef ALLRANKS_COMMUNICATOR_BOOTSTRAP_HPP_
#define ALLRANKS_COMMUNICATOR_BOOTSTRAP_HPP_

#include <cstdint>
#include <string>
#include <vector>

namespace allranks {

using Bytes = std::string;  // of any values

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  virtual int rank() const = 0;
  virtual int rank_count() const = 0;
  // Longest wait of one call, in microseconds; kNoTimeout: none.
  virtual void set_timeout_us(std::uint64_t timeout_us) = 0;

  // Collective: everybody's bytes, by rank. Valid until this rank's next call. `object` says what for, in stories.
  // Throws Timeout, PeerLost, Stalled.
  virtual const std::vector<Bytes>& all_gather(const Bytes& mine, const std::string& object) = 0;
  virtual void send(int peer, int tag, const Bytes& bytes) = 0;
  // Throws Timeout, PeerLost, Stalled.
  virtual Bytes receive(int peer, int tag) = 0;
  // Waits of all ranks for all others that this rank has entered: all_gather calls.
  virtual std::uint64_t rendezvous_count() const = 0;
  // For a group that is broken: this rank's device work is over, so that its peers may give their memory back. Waits
  // until every rank has said so, is gone, or the deadline. Never throws.
  virtual void farewell() noexcept = 0;
  // This rank takes no further part; who waits for it now or later gets PeerLost. Never throws, may be repeated.
  virtual void leave() noexcept = 0;

  void barrier(const std::string& object) { all_gather({}, object); }
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_BOOTSTRAP_HPP_
