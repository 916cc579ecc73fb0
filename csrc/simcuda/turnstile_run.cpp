// The part of the turnstile that begins and ends deterministic runs.
#include <chrono>

#include "turnstile.hpp"

namespace allranks::sim {

bool Turnstile::begin_run(int task_count, std::unique_ptr<Schedule> schedule) {
  const Blocking blocking;
  const std::lock_guard lock(mutex_);
  if (run_active_ || task_count < 1) return false;
  run_active_ = true;
  expected_ = task_count;
  entered_ = 0;
  entering_.clear();
  entering_.resize(static_cast<std::size_t>(task_count));
  schedule_ = std::move(schedule);
  decision_ = 0;
  deviations_.clear();
  moments_.clear();
  stalled_ = false;
  verdict_ns_ = 0;
  return true;
}

bool Turnstile::enter(Process* process, int rank, int order) {
  const Blocking blocking;
  Task* task = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!run_active_ || order < 0 || order >= expected_ || entered_ == expected_ ||
        entering_[static_cast<std::size_t>(order)]) {
      return false;
    }
    auto fresh = std::make_unique<Task>();
    task = fresh.get();
    task->name = "rank " + std::to_string(rank);
    task->rank = rank;
    task->process = process;
    task->label_source = &this_thread().label;
    entering_[static_cast<std::size_t>(order)] = std::move(fresh);
    this_thread().task = task;
    if (++entered_ == expected_) start_run();
  }
  task->baton.wait();
  return true;
}

// Everybody is here: number the tasks in their order and give the first one the turn.
void Turnstile::start_run() {
  Task* const first = entering_.front().get();
  for (std::unique_ptr<Task>& task : entering_) {
    task->ordinal = next_ordinal_++;
    runnable_.push_back(task.get());
    tasks_.push_back(std::move(task));
  }
  entering_.clear();
  current_ = cyclic_at(first, ask(static_cast<std::uint32_t>(runnable_.size())));
  if (current_->is_fiber) current_ = first;
  current_->baton.post();
}

void Turnstile::leave() {
  progress_.fetch_add(1, std::memory_order_relaxed);
  ThreadState& thread = this_thread();
  Task& task = *thread.task;
  thread.task = nullptr;
  task.own_label = *task.label_source;
  task.label_source = nullptr;
  task.state = Task::State::kLeft;
  remove_runnable(task);
  Task* const next = host_fibers(task.thread_execution, pick_next(task));
  if (next == nullptr) {
    end_run();
  } else {
    next->baton.post();  // `task` may be gone from here on
  }
}

void Turnstile::end_run() {
  const Blocking blocking;
  const std::lock_guard lock(mutex_);
  reap();
  std::erase_if(tasks_, [](const std::unique_ptr<Task>& task) { return !task->is_fiber; });
  current_ = nullptr;
  run_active_ = false;
  schedule_.reset();
  run_over_.notify_all();
}

bool Turnstile::await_run(std::uint64_t quiet_ms) {
  const Blocking blocking;
  std::unique_lock lock(mutex_);
  std::uint64_t seen = progress_.load(std::memory_order_relaxed);
  while (run_active_) {
    if (run_over_.wait_for(lock, std::chrono::milliseconds(quiet_ms), [&] { return !run_active_; })) break;
    const std::uint64_t now = progress_.load(std::memory_order_relaxed);
    if (now == seen) return false;
    seen = now;
  }
  return true;
}

}  // namespace allranks::sim
