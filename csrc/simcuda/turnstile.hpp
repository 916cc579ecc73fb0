// The turnstile: exactly one task of a node runs at a time, and every blocking point goes through one `wait`.
//
// Tasks are ranks' threads and fibers (streams, blocks). In a *run* the set of threads is closed, so the turnstile
// knows at once when nothing can run any more: it then jumps its clock to the earliest deadline or, with none
// pending, calls a stall, records who waits for whom, and unwinds every waiting task. Outside a run (a program that
// nobody here wrote) threads come and go; they are serialised by a mutex, time is real, and no stall is ever called.
//
// Which task goes next is asked of the schedule: choice 0 goes on with the current task, or with the next in cyclic
// order when the current one waits. Same tasks, same choices: the same order, always.
//
// Threads: everything but `await_run` needs the turn (a Turn object, or being the running task).
#ifndef ALLRANKS_SIMCUDA_TURNSTILE_HPP_
#define ALLRANKS_SIMCUDA_TURNSTILE_HPP_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fiber.hpp"
#include "thread_state.hpp"

namespace allranks::sim {

inline constexpr std::uint64_t kNoTimeout = UINT64_MAX;

enum class WaitResult {
  kReady = 0,
  kTimeout = 1,  // the deadline came first
  kStalled = 2,  // nothing can ever run: the task is being unwound
  kNoRun = 3     // the node is going away
};

struct WaitSpec {
  std::function<bool()> ready;                            // no side effects
  std::function<void(std::vector<int>&)> waits_for = {};  // ranks still missing
  const void* key = nullptr;                              // notify(key) asks `ready` again
  const char* call = "";                                  // "cuMulticastBindMem"
  std::string object = {};                                // "multicast object 3"
  std::uint64_t timeout_us = kNoTimeout;
  bool polled = false;  // may become ready without a notify: the host writes there itself
};

// A futex word that one thread waits on and another posts.
class Baton {
 public:
  void post();
  void wait();

 private:
  std::atomic<std::uint32_t> posted_{0};
};

// What a thread does around blocking, in its own words: an interpreter gives up the lock that other tasks need.
// `before` gives what `after` gets. Set once, before other threads call in.
struct BlockingHooks {
  void* (*before)() = nullptr;
  void (*after)(void* state) = nullptr;
};
extern BlockingHooks blocking_hooks;

// While one of these lives the calling thread may block. What it waits for may need what `before` gave up, so no
// mutex of the turnstile is taken outside of one.
class Blocking {
 public:
  Blocking() : state_(blocking_hooks.before != nullptr ? blocking_hooks.before() : nullptr) {}
  ~Blocking() {
    if (state_ != nullptr) blocking_hooks.after(state_);
  }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

 private:
  void* state_;
};

class Task {
 public:
  enum class State { kRunnable, kWaiting, kLeft };

  std::uint32_t ordinal = 0;
  std::string name;
  int rank = -1;
  Process* process = nullptr;
  bool is_fiber = false;

  const Label& label() const { return label_source != nullptr ? *label_source : own_label; }
  Label own_label;
  const Label* label_source = nullptr;  // a thread's label lives in its ThreadState

  State state = State::kRunnable;
  const WaitSpec* waiting = nullptr;
  std::uint64_t deadline_us = kNoTimeout;
  WaitResult result = WaitResult::kReady;

  Execution thread_execution;    // of a thread task
  std::unique_ptr<Fiber> fiber;  // of a fiber task
  Baton baton;

  Execution& execution() { return is_fiber ? static_cast<Execution&>(*fiber) : thread_execution; }
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  // Which of `runnable` tasks goes next at this decision; 0 goes on.
  virtual std::uint32_t choose(std::uint64_t decision, std::uint32_t runnable) = 0;
};

class Turnstile {
 public:
  Turnstile();
  ~Turnstile();
  Turnstile(const Turnstile&) = delete;
  Turnstile& operator=(const Turnstile&) = delete;

  // Held while a thread is inside the driver. In a run a task already has the turn, and this is a decision.
  class Turn {
   public:
    explicit Turn(Turnstile& turnstile);

   private:
    std::unique_lock<std::mutex> lock_;
  };

  WaitResult wait(const WaitSpec& spec);
  void notify(const void* key);
  // Wakes those who wait on a key in [begin, end): words of device memory.
  void notify_range(const void* begin, const void* end);
  // Asks every waiting task again: for rare changes that concern all, such as a broken context.
  void notify_all();

  // A chance for other runnable tasks; choice 0 stays.
  void decide();
  // Lets every other runnable task go first: for callers that poll.
  void give_way();

  // A new fiber task, runnable from now on. `body` runs with the turn and must not throw.
  Task* spawn(std::string name, Process* process, const Label& label, std::function<void()> body);

  bool in_run() const { return run_active_; }
  std::uint64_t now_us() const;

  // --- runs ---
  // False when a run is active already.
  bool begin_run(int task_count, std::unique_ptr<Schedule> schedule);
  // False when no run waits for a task with this order.
  bool enter(Process* process, int rank, int order);
  void leave();
  // True: the run is over. False: a task held the turn for `quiet_ms` without coming by here.
  bool await_run(std::uint64_t quiet_ms);
  // Unwinds and ends every fiber; for the end of a node.
  void drain();
  // The same for the fibers of one process, with the turn held by a thread outside of a run.
  void end_tasks_of(const Process& process);
  // Has every thread that waits outside of a run look again, also at whether it is abandoned.
  void wake_outside() { changed_.notify_all(); }
  // True while some thread waits outside of a run: it may be about to look at what it waits for.
  bool waited_outside() const { return outside_waiters_ > idle_carriers_; }
  // Outside of a run and with the turn: carries out work as it comes, whether or not somebody waits for it, until
  // `over`, which is asked at every `wake_outside`.
  void carry_out_until(const std::function<bool()>& over);
  // True when there is work that no thread is carrying out.
  bool has_work() const { return !runnable_.empty(); }
  // Fibers that wait, in order of their making.
  std::vector<const Task*> waiting_fibers() const;

  struct Moment {
    bool stall = false;
    std::uint64_t clock_us = 0;
    std::uint64_t decision = 0;
    std::string waits;  // JSON arrays
    std::string others;
  };
  bool stalled() const { return stalled_; }
  std::uint64_t decisions() const { return decision_; }
  std::uint64_t verdict_ns() const { return verdict_ns_; }
  const std::vector<Moment>& moments() const { return moments_; }
  const std::vector<std::pair<std::uint64_t, std::uint32_t>>& deviations() const { return deviations_; }

  // Called for each process whose tasks a stall unwinds.
  std::function<void(Process*)> on_unwind;

  // Empty when everything is as it should be, else what is not.
  std::string check_invariants() const;

 private:
  WaitResult wait_as_task(Task& task, const WaitSpec& spec);
  enum class Waits { kForCondition, kForWork };
  WaitResult wait_outside(const WaitSpec& spec, Waits waits);
  // Asks those again whose waits are polled.
  void poll();
  bool polls() const;
  template <typename Concerned>
  void ask_again(const Concerned& concerned);

  // turnstile_schedule.cpp: who is next.
  void make_runnable(Task& task, WaitResult result);
  void remove_runnable(const Task& task);
  Task* cyclic_at(const Task* first, std::uint32_t index) const;
  Task* pick_next(Task& leaving);
  bool revive();
  bool jump_to_deadline();
  void expire_deadlines();
  void call_stall();
  void record_moment(bool stall);
  std::uint32_t ask(std::uint32_t runnable);

  // Gives the turn from the calling task to `next`; returns when the caller has it again.
  void pass_turn(Task& from, Task* next);
  // A thread runs fibers until another thread's task is next; returns that one (null: none is alive).
  Task* host_fibers(Execution& host, Task* next);
  Execution* end_fiber(Task& task);
  void reap();
  void start_run();
  void end_run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // for threads outside a run
  std::condition_variable run_over_;
  int outside_waiters_ = 0;
  int idle_carriers_ = 0;  // of these, those that wait for nothing but work

  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<Task*> runnable_;  // by ordinal
  struct Waiter {
    const void* key;
    Task* task;
  };
  std::vector<Waiter> waiting_;
  std::vector<Task*> ended_;  // fibers whose stacks can be taken
  StackPool stacks_;
  std::uint32_t next_ordinal_ = 0;
  Task* current_ = nullptr;
  Execution* host_ = nullptr;  // the thread that fibers return to
  Task* handed_ = nullptr;     // whom a fiber picked when it returned there

  bool run_active_ = false;
  bool draining_ = false;
  const Process* ending_ = nullptr;  // whose fibers are being unwound
  int expected_ = 0;
  int entered_ = 0;
  std::vector<std::unique_ptr<Task>> entering_;
  std::unique_ptr<Schedule> schedule_;
  std::uint64_t decision_ = 0;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> deviations_;
  std::vector<Moment> moments_;
  bool stalled_ = false;
  std::uint64_t clock_us_ = 0;
  std::uint64_t wait_began_ns_ = 0;
  std::uint64_t verdict_ns_ = 0;
  std::uint64_t created_ns_ = 0;
  std::atomic<std::uint64_t> progress_{0};
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_TURNSTILE_HPP_
