// Fibers: stacks of their own that run on whichever thread has the turn.
//
// The blocks of a simulated kernel and the work of a simulated stream are fibers, so that thousands of them cost
// neither threads nor kernel wake-ups. A fiber may be resumed by another thread than the one that suspended it;
// code that runs on one therefore keeps nothing in thread-local storage across a switch and never switches while
// an exception is being handled.
//
// Not a scheduler: turnstile.hpp decides who runs. Portable through <ucontext.h> (x86-64 and aarch64 alike).
#ifndef ALLRANKS_SIMCUDA_FIBER_HPP_
#define ALLRANKS_SIMCUDA_FIBER_HPP_

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace allranks::sim {

// A memory-mapped stack with a guard page below it.
class Stack {
 public:
  Stack();
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  void* base() const { return base_; }
  static constexpr std::size_t kUsableBytes = 256 * 1024;

 private:
  void* mapping_ = nullptr;
  void* base_ = nullptr;
};

// A point of execution that can be left and come back to: a thread's own stack, or a fiber's.
class Execution {
 public:
  Execution() = default;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Leaves the running execution `from` and continues `to`; returns when somebody continues `from`.
  static void switch_to(Execution& from, Execution& to) { transfer(from, to, Leaving::kForNow); }

 protected:
  enum class Leaving { kForNow, kForEver };
  static void transfer(Execution& from, Execution& to, Leaving leaving);
  static void arrived(Execution& here);

  ucontext_t context_{};
  // What sanitizers want to know about stacks; unused otherwise.
  const void* stack_bottom_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
  Execution* came_from_ = nullptr;
  void* tsan_state_ = nullptr;
  bool is_fiber_ = false;
};

// An execution with its own stack and a body. When the body ends, the fiber continues `*exit_to`, which the body
// may set as late as it likes.
class Fiber : public Execution {
 public:
  // `body` must not throw. It returns the execution to continue with.
  Fiber(std::unique_ptr<Stack> stack, std::function<Execution*()> body);

  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The stack of a fiber whose body has ended, for the next one.
  std::unique_ptr<Stack> take_stack() { return std::move(stack_); }

 private:
  static void trampoline(unsigned high, unsigned low);
  [[noreturn]] void run();

  std::unique_ptr<Stack> stack_;
  std::function<Execution*()> body_;
};

// Stacks ready for use. One a turnstile; not thread-safe of its own.
class StackPool {
 public:
  std::unique_ptr<Stack> take();
  void give(std::unique_ptr<Stack> stack);

 private:
  static constexpr std::size_t kKept = 128;
  std::vector<std::unique_ptr<Stack>> free_;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_FIBER_HPP_
