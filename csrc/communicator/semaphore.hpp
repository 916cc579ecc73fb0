// One direction of signalling between two ranks of a connection: a word that only grows.
//
// The signaller counts its signals and stores the count into the waiter's control page; the waiter counts its waits and
// expects the word to have come that far. Both counts carry the connection's number in their upper half, so that a slot
// used again never mistakes an old signal for a new one. Memory order and time-out: device/channels.h.
#ifndef ALLRANKS_COMMUNICATOR_SEMAPHORE_HPP_
#define ALLRANKS_COMMUNICATOR_SEMAPHORE_HPP_

#include <cstddef>
#include <cstdint>

#include "device/layout.h"

namespace allranks {

// Where the word from one rank for a slot lies in a control page.
inline std::uint64_t semaphore_word(std::uint64_t control, std::uint32_t slot, int from) {
  return control + offsetof(device::Control, semaphore) +
         8ull * (std::uint64_t{slot} * device::kMaxRanks + static_cast<std::uint64_t>(from));
}

class Semaphore {
 public:
  explicit Semaphore(std::uint32_t connection) : sent_(std::uint64_t{connection} << 32), awaited_(sent_) {}

  // The value of the next signal or wait, and the note that it has been enqueued.
  std::uint64_t next_signal() const { return sent_ + 1; }
  void signalled() { ++sent_; }
  std::uint64_t next_wait() const { return awaited_ + 1; }
  void waited() { ++awaited_; }

 private:
  std::uint64_t sent_;
  std::uint64_t awaited_;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_SEMAPHORE_HPP_
