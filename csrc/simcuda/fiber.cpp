#include "fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define ALLRANKS_FIBER_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define ALLRANKS_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ALLRANKS_FIBER_ASAN 1
#elif __has_feature(thread_sanitizer)
#define ALLRANKS_FIBER_TSAN 1
#endif
#endif

#ifdef ALLRANKS_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef ALLRANKS_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace allranks::sim {

Stack::Stack() {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* mapping = mmap(nullptr, kUsableBytes + page_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mprotect(mapping, page_bytes, PROT_NONE);
  mapping_ = mapping;
  base_ = static_cast<unsigned char*>(mapping) + page_bytes;
}

Stack::~Stack() {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  munmap(mapping_, kUsableBytes + page_bytes);
}

void Execution::transfer(Execution& from, Execution& to, [[maybe_unused]] Leaving leaving) {
  to.came_from_ = &from;
#ifdef ALLRANKS_FIBER_ASAN
  __sanitizer_start_switch_fiber(leaving == Leaving::kForEver ? nullptr : &from.fake_stack_, to.stack_bottom_,
                                 to.stack_bytes_);
#endif
#ifdef ALLRANKS_FIBER_TSAN
  if (!from.is_fiber_) from.tsan_state_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.tsan_state_, 0);
#endif
  swapcontext(&from.context_, &to.context_);
  arrived(from);
}

void Execution::arrived([[maybe_unused]] Execution& here) {
#ifdef ALLRANKS_FIBER_ASAN
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(here.fake_stack_, &bottom, &bytes);
  if (here.came_from_ != nullptr) {
    here.came_from_->stack_bottom_ = bottom;
    here.came_from_->stack_bytes_ = bytes;
  }
#endif
}

Fiber::Fiber(std::unique_ptr<Stack> stack, std::function<Execution*()> body)
    : stack_(std::move(stack)), body_(std::move(body)) {
  stack_bottom_ = stack_->base();
  stack_bytes_ = Stack::kUsableBytes;
  is_fiber_ = true;
#ifdef ALLRANKS_FIBER_TSAN
  tsan_state_ = __tsan_create_fiber(0);
#endif
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_->base();
  context_.uc_stack.ss_size = Stack::kUsableBytes;
  context_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&context_, reinterpret_cast<void (*)()>(&Fiber::trampoline), 2,
              static_cast<unsigned>(static_cast<std::uint64_t>(self) >> 32), static_cast<unsigned>(self));
}

Fiber::~Fiber() {
#ifdef ALLRANKS_FIBER_TSAN
  __tsan_destroy_fiber(tsan_state_);
#endif
}

void Fiber::trampoline(unsigned high, unsigned low) {
  const auto address = (static_cast<std::uint64_t>(high) << 32) | low;
  reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(address))->run();
}

void Fiber::run() {
  arrived(*this);
  Execution* next = body_();
  transfer(*this, *next, Leaving::kForEver);
  std::abort();  // a fiber that has ended is never continued
}

std::unique_ptr<Stack> StackPool::take() {
  if (free_.empty()) return std::make_unique<Stack>();
  std::unique_ptr<Stack> stack = std::move(free_.back());
  free_.pop_back();
  return stack;
}

void StackPool::give(std::unique_ptr<Stack> stack) {
  if (stack && free_.size() < kKept) free_.push_back(std::move(stack));
}

}  // namespace allranks::sim
