// Functions of a client that its streams call: one after the other, on a thread of the client's own that is there for
// them (cuda.h allows that functions of independent streams are serialised).
//
// Threads: `call` with the turn, the rest without.
#ifndef ALLRANKS_SIMCUDA_BROKER_GUEST_FUNCTIONS_HPP_
#define ALLRANKS_SIMCUDA_BROKER_GUEST_FUNCTIONS_HPP_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "broker/guest_memory.hpp"
#include "host_functions.hpp"
#include "turnstile.hpp"

namespace allranks::sim::broker {

class GuestFunctions : public HostFunctions {
 public:
  // `progress` grows with what the client does.
  GuestFunctions(Turnstile& turnstile, GuestMemory& memory, std::atomic<std::uint64_t>& progress)
      : turnstile_(turnstile), memory_(memory), progress_(progress) {}

  void call(const HostFunction& function) override;
  // Passes functions on over a connection of the client, until that breaks or `end`.
  void serve(int socket);
  // Nothing is called any more.
  void end();
  // True while there is a function that the client has not begun.
  bool has_more() const { return more_ > 0; }

 private:
  struct Pending {
    HostFunction function;
    std::atomic<bool> done = false;
  };
  std::shared_ptr<Pending> next();
  // False when the client is gone.
  bool pass_on(const Pending& pending, int socket);

  Turnstile& turnstile_;
  GuestMemory& memory_;
  std::atomic<std::uint64_t>& progress_;
  std::atomic<int> more_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Pending>> pending_;
  bool ended_ = false;
};

}  // namespace allranks::sim::broker

#endif  // ALLRANKS_SIMCUDA_BROKER_GUEST_FUNCTIONS_HPP_
