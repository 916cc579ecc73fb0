// How a rank's thread waits on its host: the only place where the communicator blocks outside of driver calls.
//
// Two kinds: the turnstile of the simulated driver, which sees every wait and owns the clock, and a condition variable
// for ranks that are plain threads. Shared state has its own mutex, held neither across a wait nor across a notify.
//
// Threads: any. A condition is asked by any thread, has no side effects, and may lock what its state needs.
#ifndef ALLRANKS_COMMUNICATOR_WAITER_HPP_
#define ALLRANKS_COMMUNICATOR_WAITER_HPP_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver.hpp"

namespace allranks {

inline constexpr std::uint64_t kNoTimeout = UINT64_MAX;

struct Wait {
  std::function<bool()> ready;
  std::function<std::vector<int>()> missing;  // ranks that it still waits for
  const void* key = nullptr;                  // notify(key) has `ready` asked again
  const char* call = "";                      // "bootstrap.all_gather"; lives for ever
  std::string object;                         // "connect #3"
  std::uint64_t timeout_us = kNoTimeout;
};

enum class WaitOutcome { kReady, kTimeout, kStalled };

class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual WaitOutcome wait(const Wait& what) = 0;
  virtual void notify(const void* key) = 0;
};

class ConditionWaiter final : public Waiter {
 public:
  WaitOutcome wait(const Wait& what) override;
  void notify(const void* key) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t changes_ = 0;
};

class TurnstileWaiter final : public Waiter {
 public:
  using WaitFunction = decltype(&::simcuWait);
  using NotifyFunction = decltype(&::simcuNotify);
  TurnstileWaiter(WaitFunction wait_call, NotifyFunction notify_call) : wait_(wait_call), notify_(notify_call) {}
  WaitOutcome wait(const Wait& what) override;
  void notify(const void* key) override;

 private:
  WaitFunction wait_;
  NotifyFunction notify_;
};

// The kind that fits the driver.
std::shared_ptr<Waiter> make_waiter(const Driver& driver);

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_WAITER_HPP_
