#include "event.hpp"

#include "context.hpp"
#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

constexpr std::uint64_t kHandleTag = 0xe700'0000'0000ull;

}  // namespace

CUevent EventTable::create(bool timed) {
  const Birth birth = context_.process.birth(LedgerKind::kEvent);
  const std::uint64_t handle = kHandleTag | (static_cast<std::uint64_t>(context_.device) << 32) | (next_handle_++ << 4);
  events_.emplace(handle, std::make_shared<Event>(
                              Event{.birth = birth, .name = "event " + std::to_string(birth.ordinal), .timed = timed}));
  return reinterpret_cast<CUevent>(handle);
}

std::shared_ptr<Event> EventTable::find(CUevent handle) const {
  const auto found = events_.find(reinterpret_cast<std::uint64_t>(handle));
  return found == events_.end() ? nullptr : found->second;
}

bool EventTable::destroy(CUevent handle) { return events_.erase(reinterpret_cast<std::uint64_t>(handle)) != 0; }

void EventTable::record(const std::shared_ptr<Event>& event, Stream& stream, Turnstile& turnstile) {
  const std::uint64_t number = ++event->recorded;
  stream.enqueue("cuEventRecord", [event, number, &turnstile] {
    event->completed = number;
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

}  // namespace allranks::sim
