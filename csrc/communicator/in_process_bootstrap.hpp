// A bootstrap between ranks that are threads of one process: shared memory and a Waiter.
//
// A rendezvous is shared by its ranks. The k-th bootstrap that each rank takes from it belongs to one session, so that
// several communicators over one rendezvous do not hear each other, as long as all ranks make them in one order.
//
// Threads: InProcessRendezvous: any. Source of the round scheme: double buffering by parity; nobody can be two rounds
// ahead of anybody, since finishing a round needs everybody's entry into it.
#ifndef ALLRANKS_COMMUNICATOR_IN_PROCESS_BOOTSTRAP_HPP_
#define ALLRANKS_COMMUNICATOR_IN_PROCESS_BOOTSTRAP_HPP_

#include <memory>
#include <mutex>
#include <vector>

#include "bootstrap.hpp"
#include "waiter.hpp"

namespace allranks {

class InProcessSession;

class InProcessRendezvous {
 public:
  // Throws UsageError for rank_count < 1.
  InProcessRendezvous(int rank_count, std::shared_ptr<Waiter> waiter);

  int rank_count() const { return rank_count_; }
  // Throws UsageError for a rank out of range.
  std::shared_ptr<Bootstrap> bootstrap(int rank);

 private:
  const int rank_count_;
  const std::shared_ptr<Waiter> waiter_;
  std::mutex mutex_;
  std::vector<std::size_t> taken_;                           // sessions that each rank has taken
  std::vector<std::shared_ptr<InProcessSession>> sessions_;  // null once every rank has taken it
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_IN_PROCESS_BOOTSTRAP_HPP_
