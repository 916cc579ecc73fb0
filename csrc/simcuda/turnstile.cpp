#include "turnstile.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace allranks::sim {

namespace {

constexpr std::uint64_t kPollEveryUs = 500;

std::uint64_t real_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

}  // namespace

BlockingHooks blocking_hooks;

void Baton::post() {
  posted_.store(1, std::memory_order_release);
  syscall(SYS_futex, &posted_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void Baton::wait() {
  while (posted_.exchange(0, std::memory_order_acquire) == 0) {
    syscall(SYS_futex, &posted_, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }
}

Turnstile::Turnstile() : created_ns_(real_ns()) {}

Turnstile::~Turnstile() { drain(); }

Turnstile::Turn::Turn(Turnstile& turnstile) {
  if (turnstile.run_active_ && this_thread().task != nullptr) {
    turnstile.decide();
    return;
  }
  const Blocking blocking;
  lock_ = std::unique_lock(turnstile.mutex_);
  // A thread that is no task of the run in progress has to let it end first.
  turnstile.run_over_.wait(lock_, [&] { return !turnstile.run_active_ || turnstile.entered_ < turnstile.expected_; });
}

std::uint64_t Turnstile::now_us() const {
  return run_active_ ? clock_us_ : clock_us_ + (real_ns() - created_ns_) / 1000;
}

WaitResult Turnstile::wait(const WaitSpec& spec) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  if (spec.ready()) return WaitResult::kReady;
  return current_ != nullptr ? wait_as_task(*current_, spec) : wait_outside(spec, Waits::kForCondition);
}

WaitResult Turnstile::wait_as_task(Task& task, const WaitSpec& spec) {
  if (draining_ || (ending_ != nullptr && task.process == ending_)) return WaitResult::kStalled;
  if (run_active_) wait_began_ns_ = real_ns();
  task.state = Task::State::kWaiting;
  task.waiting = &spec;
  task.deadline_us = spec.timeout_us == kNoTimeout ? kNoTimeout : now_us() + spec.timeout_us;
  remove_runnable(task);
  waiting_.push_back({spec.key, &task});
  pass_turn(task, pick_next(task));
  return task.result;
}

WaitResult Turnstile::wait_outside(const WaitSpec& spec, Waits waits) {
  std::unique_lock lock(mutex_, std::adopt_lock);
  const std::uint64_t deadline_us = spec.timeout_us == kNoTimeout ? kNoTimeout : now_us() + spec.timeout_us;
  WaitResult result = WaitResult::kReady;
  ThreadState& thread = this_thread();
  while (!spec.ready()) {
    if (draining_ || (thread.abandoned != nullptr && thread.abandoned->load())) {
      result = WaitResult::kNoRun;
      break;
    }
    if (!runnable_.empty()) {
      Execution here;
      host_fibers(here, runnable_.front());
      current_ = nullptr;
      continue;
    }
    const std::uint64_t now = now_us();
    if (now >= deadline_us) {
      result = WaitResult::kTimeout;
      break;
    }
    std::uint64_t wake_us = deadline_us;
    for (const Waiter& waiter : waiting_) wake_us = std::min(wake_us, waiter.task->deadline_us);
    if (spec.polled || polls()) wake_us = std::min(wake_us, now + kPollEveryUs);
    const Blocking blocking;
    const int carriers = waits == Waits::kForWork ? 1 : 0;
    ++outside_waiters_;
    idle_carriers_ += carriers;
    thread.waiting = &spec;
    if (wake_us == kNoTimeout) {
      changed_.wait(lock);
    } else if (wake_us > now) {
      changed_.wait_for(lock, std::chrono::microseconds(wake_us - now));
    }
    thread.waiting = nullptr;
    idle_carriers_ -= carriers;
    --outside_waiters_;
    expire_deadlines();
    poll();
  }
  lock.release();
  return result;
}

template <typename Concerned>
void Turnstile::ask_again(const Concerned& concerned) {
  progress_.fetch_add(1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < waiting_.size();) {
    Task& task = *waiting_[i].task;
    if (concerned(waiting_[i].key) && task.waiting->ready()) {
      make_runnable(task, WaitResult::kReady);  // takes the entry out
    } else {
      ++i;
    }
  }
  if (outside_waiters_ > 0) changed_.notify_all();
}

bool Turnstile::polls() const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [](const Waiter& waiter) { return waiter.task->waiting->polled; });
}

void Turnstile::poll() {
  for (std::size_t i = 0; i < waiting_.size();) {
    Task& task = *waiting_[i].task;
    if (task.waiting->polled && task.waiting->ready()) {
      make_runnable(task, WaitResult::kReady);  // takes the entry out
    } else {
      ++i;
    }
  }
}

void Turnstile::notify(const void* key) {
  ask_again([&](const void* waited) { return waited == key; });
}

void Turnstile::notify_range(const void* begin, const void* end) {
  if (waiting_.empty() && outside_waiters_ == 0) return;
  ask_again([&](const void* waited) { return waited >= begin && waited < end; });
}

void Turnstile::notify_all() {
  ask_again([](const void*) { return true; });
}

void Turnstile::pass_turn(Task& from, Task* next) {
  if (next == &from) {
    current_ = &from;
    return;
  }
  if (from.is_fiber) {
    handed_ = next;
    current_ = next;
    Execution& to = next != nullptr && next->is_fiber ? next->execution() : *host_;
    Execution::switch_to(from.execution(), to);
    return;
  }
  next = host_fibers(from.thread_execution, next);
  if (next == &from) return;
  const Blocking blocking;
  next->baton.post();
  from.baton.wait();
}

Task* Turnstile::host_fibers(Execution& host, Task* next) {
  while (next != nullptr && next->is_fiber) {
    Execution* const outer = host_;
    host_ = &host;
    current_ = next;
    Execution::switch_to(host, next->execution());
    host_ = outer;
    next = handed_;
    reap();
  }
  current_ = next;
  return next;
}

Task* Turnstile::spawn(std::string name, Process* process, const Label& label, std::function<void()> body) {
  reap();
  auto task = std::make_unique<Task>();
  Task* const raw = task.get();
  raw->ordinal = next_ordinal_++;
  raw->name = std::move(name);
  raw->process = process;
  raw->own_label = label;
  raw->is_fiber = true;
  raw->fiber = std::make_unique<Fiber>(stacks_.take(), [this, raw, body = std::move(body)] {
    body();
    return end_fiber(*raw);
  });
  tasks_.push_back(std::move(task));
  runnable_.push_back(raw);
  if (outside_waiters_ > 0) changed_.notify_all();  // one of them can carry it out
  return raw;
}

Execution* Turnstile::end_fiber(Task& task) {
  task.state = Task::State::kLeft;
  remove_runnable(task);
  ended_.push_back(&task);
  Task* const next = pick_next(task);
  handed_ = next;
  current_ = next;
  return next != nullptr && next->is_fiber ? &next->execution() : host_;
}

void Turnstile::reap() {
  for (Task* ended : ended_) {
    stacks_.give(ended->fiber->take_stack());
    std::erase_if(tasks_, [&](const std::unique_ptr<Task>& task) { return task.get() == ended; });
  }
  ended_.clear();
}

void Turnstile::drain() {
  const Blocking blocking;
  const std::lock_guard lock(mutex_);
  draining_ = true;
  while (!waiting_.empty()) make_runnable(*waiting_.back().task, WaitResult::kStalled);
  Execution here;
  while (!runnable_.empty()) host_fibers(here, runnable_.front());
  reap();
  current_ = nullptr;
  draining_ = false;
  changed_.notify_all();
}

void Turnstile::carry_out_until(const std::function<bool()>& over) { wait_outside({.ready = over}, Waits::kForWork); }

void Turnstile::end_tasks_of(const Process& process) {
  const auto belongs = [&](const Task& task) { return task.is_fiber && task.process == &process; };
  ending_ = &process;
  for (std::size_t i = 0; i < waiting_.size();) {
    Task& task = *waiting_[i].task;
    if (belongs(task)) {
      make_runnable(task, WaitResult::kStalled);  // takes the entry out
    } else {
      ++i;
    }
  }
  const auto one_is_alive = [&] {
    return std::any_of(runnable_.begin(), runnable_.end(), [&](const Task* task) { return belongs(*task); });
  };
  while (one_is_alive()) {
    Execution here;
    host_fibers(here, runnable_.front());
    current_ = nullptr;
  }
  reap();
  ending_ = nullptr;
}

std::vector<const Task*> Turnstile::waiting_fibers() const {
  std::vector<const Task*> waiting;
  for (const auto& task : tasks_) {
    if (task->is_fiber && task->state == Task::State::kWaiting) waiting.push_back(task.get());
  }
  return waiting;
}

std::string Turnstile::check_invariants() const {
  if (!std::is_sorted(runnable_.begin(), runnable_.end(),
                      [](const Task* a, const Task* b) { return a->ordinal < b->ordinal; })) {
    return "runnable tasks are out of order";
  }
  for (const Task* task : runnable_) {
    if (task->state != Task::State::kRunnable) return "a task that is not runnable is queued: " + task->name;
  }
  for (const Waiter& waiter : waiting_) {
    if (waiter.task->state != Task::State::kWaiting) return "a task that does not wait is kept: " + waiter.task->name;
  }
  if (!run_active_ && !entering_.empty()) return "tasks wait to enter a run that is not there";
  return {};
}

}  // namespace allranks::sim
