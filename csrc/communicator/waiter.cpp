#include "waiter.hpp"

#include <algorithm>
#include <chrono>

namespace allranks {

WaitOutcome ConditionWaiter::wait(const Wait& what) {
  using Clock = std::chrono::steady_clock;
  const bool bounded = what.timeout_us != kNoTimeout;
  const Clock::time_point deadline =
      bounded ? Clock::now() + std::chrono::microseconds(what.timeout_us) : Clock::time_point::max();
  std::unique_lock lock(mutex_);
  for (;;) {
    const std::uint64_t seen = changes_;
    lock.unlock();
    if (what.ready()) return WaitOutcome::kReady;
    lock.lock();
    const auto changed = [&] { return changes_ != seen; };
    if (!bounded) {
      changed_.wait(lock, changed);
    } else if (!changed_.wait_until(lock, deadline, changed)) {
      lock.unlock();
      return what.ready() ? WaitOutcome::kReady : WaitOutcome::kTimeout;
    }
  }
}

void ConditionWaiter::notify(const void*) {
  {
    const std::lock_guard lock(mutex_);
    ++changes_;
  }
  changed_.notify_all();
}

namespace {

int ask_ready(void* state) { return static_cast<const Wait*>(state)->ready() ? 1 : 0; }

std::size_t ask_missing(void* state, int* ranks, std::size_t capacity) {
  const std::vector<int> missing = static_cast<const Wait*>(state)->missing();
  std::copy_n(missing.begin(), std::min(capacity, missing.size()), ranks);
  return missing.size();
}

}  // namespace

WaitOutcome TurnstileWaiter::wait(const Wait& what) {
  const simcuWaitSpec spec{
      .struct_bytes = sizeof(simcuWaitSpec),
      .ready = &ask_ready,
      .waits_for = what.missing ? &ask_missing : nullptr,
      .state = const_cast<Wait*>(&what),
      .key = what.key,
      .call = what.call,
      .object = what.object.c_str(),
      .timeout_us = what.timeout_us == kNoTimeout ? SIMCU_NO_TIMEOUT : what.timeout_us,
  };
  switch (wait_(&spec)) {
    case SIMCU_WAIT_READY: return WaitOutcome::kReady;
    case SIMCU_WAIT_TIMEOUT: return WaitOutcome::kTimeout;
    default: return WaitOutcome::kStalled;
  }
}

void TurnstileWaiter::notify(const void* key) { notify_(key); }

std::shared_ptr<Waiter> make_waiter(const Driver& driver) {
  if (driver.simulated()) return std::make_shared<TurnstileWaiter>(driver.sim().wait, driver.sim().notify);
  return std::make_shared<ConditionWaiter>();
}

}  // namespace allranks
