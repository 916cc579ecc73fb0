#include "event.hpp"

#include <algorithm>
#include <utility>

#include "context.hpp"
#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

constexpr std::uint64_t kHandleTag = 0xe700'0000'0000ull;

}  // namespace

EventTable::EventTable(Context& context) : context_(context), next_handle_(context.process.next_object) {}

CUevent EventTable::add(Held held) {
  const std::uint64_t handle = kHandleTag | (static_cast<std::uint64_t>(context_.device) << 32) | (next_handle_++ << 4);
  events_.emplace(handle, std::move(held));
  return reinterpret_cast<CUevent>(handle);
}

CUevent EventTable::create(bool timed, bool interprocess) {
  const Birth birth = context_.process.birth(LedgerKind::kEvent);
  auto event = std::make_shared<Event>(Event{
      .name = "event " + std::to_string(birth.ordinal),
      .timed = timed,
      .interprocess = interprocess,
      .serial = interprocess ? context_.node().next_serial() : 0,
  });
  return add({.event = std::move(event), .birth = birth});
}

CUevent EventTable::open(std::shared_ptr<Event> event) {
  return add({.event = std::move(event), .birth = context_.process.birth(LedgerKind::kEvent), .opened = true});
}

std::shared_ptr<Event> EventTable::find(CUevent handle) const {
  const auto found = events_.find(reinterpret_cast<std::uint64_t>(handle));
  return found == events_.end() ? nullptr : found->second.event;
}

bool EventTable::destroy(CUevent handle) { return events_.erase(reinterpret_cast<std::uint64_t>(handle)) != 0; }

void EventTable::record(const std::shared_ptr<Event>& event, Stream& stream, Turnstile& turnstile) {
  const std::uint64_t number = ++event->recorded;
  stream.enqueue("cuEventRecord", [event, number, &turnstile] {
    event->completed = std::max(event->completed, number);  // records in several streams may end in any order
    event->time_us = turnstile.now_us();
    turnstile.notify(event.get());
    return CUDA_SUCCESS;
  });
}

void EventTable::wait_in(const std::shared_ptr<Event>& event, Stream& stream, Turnstile& turnstile) {
  const std::uint64_t number = event->recorded;
  stream.enqueue("cuStreamWaitEvent", [event, number, &turnstile] {
    const WaitSpec spec{.ready = [&] { return event->completed >= number; },
                        .key = event.get(),
                        .call = "cuStreamWaitEvent",
                        .object = event->name};
    return turnstile.wait(spec) == WaitResult::kReady ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
  });
}

CUresult EventTable::synchronize(Event& event, Turnstile& turnstile) {
  const std::uint64_t number = event.recorded;
  const WaitSpec spec{.ready = [&] { return event.completed >= number; },
                      .key = &event,
                      .call = "cuEventSynchronize",
                      .object = event.name};
  return turnstile.wait(spec) == WaitResult::kReady ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
}

std::shared_ptr<Event> find_event(Process& process, CUevent handle) {
  for (Context* context : process.contexts()) {
    if (std::shared_ptr<Event> event = context->events->find(handle)) return event;
  }
  return nullptr;
}

const EventTable::Held* find_held_event(Process& process, CUevent handle) {
  for (const Context* context : process.contexts()) {
    const auto found = context->events->all().find(reinterpret_cast<std::uint64_t>(handle));
    if (found != context->events->all().end()) return &found->second;
  }
  return nullptr;
}

}  // namespace allranks::sim
