// The part of the turnstile that decides who is next: choices, deadlines, stalls.
#include <algorithm>
#include <chrono>

#include "json_text.hpp"
#include "turnstile.hpp"

namespace allranks::sim {

namespace {

std::uint64_t real_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

std::string task_fields(const Task& task) {
  return "\"task\": " + json_quoted(task.name) + ", \"rank\": " + std::to_string(task.rank) +
         ", \"step\": " + std::to_string(task.label().step) + ", \"operation\": " + json_quoted(task.label().operation);
}

std::string waits_for_list(const Task& task) {
  std::vector<int> ranks;
  if (task.waiting->waits_for) task.waiting->waits_for(ranks);
  std::string out = "[";
  for (std::size_t i = 0; i < ranks.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return out + "]";
}

}  // namespace

void Turnstile::make_runnable(Task& task, WaitResult result) {
  std::erase_if(waiting_, [&](const Waiter& waiter) { return waiter.task == &task; });
  task.state = Task::State::kRunnable;
  task.waiting = nullptr;
  task.deadline_us = kNoTimeout;
  task.result = result;
  const auto place = std::lower_bound(runnable_.begin(), runnable_.end(), task.ordinal,
                                      [](const Task* a, std::uint32_t ordinal) { return a->ordinal < ordinal; });
  runnable_.insert(place, &task);
}

void Turnstile::remove_runnable(const Task& task) {
  const auto place = std::lower_bound(runnable_.begin(), runnable_.end(), task.ordinal,
                                      [](const Task* a, std::uint32_t ordinal) { return a->ordinal < ordinal; });
  if (place != runnable_.end() && *place == &task) runnable_.erase(place);
}

// Runnable tasks in cyclic order of ordinals, beginning with `first` or, when it is not runnable, with the next one.
Task* Turnstile::cyclic_at(const Task* first, std::uint32_t index) const {
  const auto start = std::lower_bound(runnable_.begin(), runnable_.end(), first->ordinal,
                                      [](const Task* a, std::uint32_t ordinal) { return a->ordinal < ordinal; });
  const auto offset = static_cast<std::size_t>(start - runnable_.begin());
  return runnable_[(offset + index) % runnable_.size()];
}

std::uint32_t Turnstile::ask(std::uint32_t runnable) {
  if (!run_active_ || runnable < 2) return 0;
  const std::uint64_t decision = decision_++;
  if (!schedule_) return 0;
  const std::uint32_t choice = schedule_->choose(decision, runnable) % runnable;
  if (choice != 0) deviations_.emplace_back(decision, choice);
  return choice;
}

void Turnstile::decide() {
  progress_.fetch_add(1, std::memory_order_relaxed);
  if (!run_active_ || current_ == nullptr || runnable_.size() < 2) return;
  const std::uint32_t choice = ask(static_cast<std::uint32_t>(runnable_.size()));
  if (choice != 0) pass_turn(*current_, cyclic_at(current_, choice));
}

void Turnstile::give_way() {
  progress_.fetch_add(1, std::memory_order_relaxed);
  poll();
  if (current_ == nullptr) {
    if (!runnable_.empty()) {
      Execution here;
      host_fibers(here, runnable_.front());
      current_ = nullptr;
    }
    return;
  }
  if (runnable_.size() > 1) {
    pass_turn(*current_, cyclic_at(current_, 1));
  } else if (run_active_) {
    jump_to_deadline();  // whoever polls lets time pass
  }
}

Task* Turnstile::pick_next(Task& leaving) {
  if (runnable_.empty() && (!run_active_ || waiting_.empty() || !revive())) return nullptr;
  return cyclic_at(&leaving, ask(static_cast<std::uint32_t>(runnable_.size())));
}

// Nothing can run: let time pass or call the stall. True when some task is runnable now.
bool Turnstile::revive() {
  poll();
  if (!runnable_.empty()) return true;
  if (!jump_to_deadline()) call_stall();
  return !runnable_.empty();
}

bool Turnstile::jump_to_deadline() {
  std::uint64_t earliest_us = kNoTimeout;
  for (const Waiter& waiter : waiting_) earliest_us = std::min(earliest_us, waiter.task->deadline_us);
  if (earliest_us == kNoTimeout) return false;
  clock_us_ = std::max(clock_us_, earliest_us);
  record_moment(false);
  expire_deadlines();
  return true;
}

void Turnstile::expire_deadlines() {
  const std::uint64_t now = now_us();
  std::vector<Task*> due;
  for (const Waiter& waiter : waiting_) {
    if (waiter.task->deadline_us <= now) due.push_back(waiter.task);
  }
  for (Task* task : due) make_runnable(*task, WaitResult::kTimeout);
}

void Turnstile::call_stall() {
  stalled_ = true;
  record_moment(true);
  std::vector<Task*> all;
  all.reserve(waiting_.size());
  for (const Waiter& waiter : waiting_) all.push_back(waiter.task);
  for (Task* task : all) {
    if (on_unwind && task->process != nullptr) on_unwind(task->process);
    make_runnable(*task, WaitResult::kStalled);
  }
  if (verdict_ns_ == 0) verdict_ns_ = real_ns() - wait_began_ns_;
}

void Turnstile::record_moment(bool stall) {
  Moment moment{.stall = stall, .clock_us = clock_us_, .decision = decision_, .waits = "[", .others = "["};
  const auto append = [](std::string& list, const std::string& entry) {
    if (list.size() > 1) list += ", ";
    list += "{" + entry + "}";
  };
  for (const auto& task : tasks_) {
    if (task->state == Task::State::kWaiting) {
      append(moment.waits, task_fields(*task) + ", \"call\": " + json_quoted(task->waiting->call) + ", \"object\": " +
                               json_quoted(task->waiting->object) + ", \"waits_for\": " + waits_for_list(*task));
    } else if (!task->is_fiber) {
      append(moment.others, task_fields(*task) +
                                ", \"state\": " + json_quoted(task->state == Task::State::kLeft ? "left" : "runnable"));
    }
  }
  moment.waits += ']';
  moment.others += ']';
  moments_.push_back(std::move(moment));
}

}  // namespace allranks::sim
