// Events.
#include "cuda_api.hpp"

#include "../event.hpp"

using namespace allranks::sim;

namespace {

// Measured: what is asked of an event needs no current context; one that is broken answers for itself all the same.
template <typename Body>
CUresult asked_of_events(Call call, const Body& body) {
  return entry(call, Needs::kInit, [&](Process& process) {
    const Context* const context = process.current_context();
    return context != nullptr && context->sticky_error != CUDA_SUCCESS ? context->sticky_error : body(process);
  });
}

template <typename Body>
CUresult with_event(Call call, CUevent handle, const Body& body) {
  return asked_of_events(call, [&](Process& process) {
    const std::shared_ptr<Event> event = find_event(process, handle);
    return event ? body(process, event) : CUDA_ERROR_INVALID_HANDLE;
  });
}

// [cuda.h] Undefined: what other processes do with an event that its own process has destroyed.
void note_open_elsewhere(Process& process, CUevent handle) {
  const EventTable::Held* const held = find_held_event(process, handle);
  if (held == nullptr || held->opened) return;
  for (const auto& other : process.node().processes()) {
    for (const Context* context : other->contexts()) {
      for (const auto& [there, opened] : context->events->all()) {
        if (!opened.opened || opened.event != held->event) continue;
        process.node().incidents.add(process, this_thread().label, "freed_while_open", "cuEventDestroy",
                                     "another process still has the event open");
        return;
      }
    }
  }
}

CUresult record(Call call, CUevent handle, CUstream stream_handle, unsigned flags) {
  return entry_on_stream(call, stream_handle, [&](Process& process, Stream& stream) {
    // Measured: in this order. [cuda.h] Both are of one context.
    const std::shared_ptr<Event> event = find_event(process, handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (!stream.context().events->find(handle)) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != CU_EVENT_RECORD_DEFAULT) return CUDA_ERROR_NOT_SUPPORTED;
    EventTable::record(event, stream, process.node().turnstile);
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned int flags) {
  return entry_in_context(Call::kEventCreate, [&](Process&, const Context& context) {
    constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    const bool timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    const bool interprocess = (flags & CU_EVENT_INTERPROCESS) != 0;
    if (event == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (interprocess && timed) return CUDA_ERROR_INVALID_VALUE;  // [cuda.h]
    *event = context.events->create(timed, interprocess);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuEventDestroy(CUevent handle) {
  return entry(Call::kEventDestroy, Needs::kInit, [&](Process& process) {
    note_open_elsewhere(process, handle);
    for (const Context* context : process.contexts()) {
      if (context->events->destroy(handle)) return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
  return record(Call::kEventRecord, event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  return record(Call::kEventRecordWithFlags, event, stream, flags);
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
  return with_event(Call::kEventQuery, handle, [](Process& process, const std::shared_ptr<Event>& event) {
    if (!event->done()) process.node().turnstile.give_way();
    return event->done() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
  return with_event(Call::kEventSynchronize, handle, [](Process& process, const std::shared_ptr<Event>& event) {
    const CUresult result = EventTable::synchronize(*event, process.node().turnstile);
    process.pools.synchronised();
    return result;
  });
}

// Time on the node's clock, in milliseconds.
CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return asked_of_events(Call::kEventElapsedTime, [&](Process& process) {
    const std::shared_ptr<Event> first = find_event(process, start);
    const std::shared_ptr<Event> last = find_event(process, end);
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!first || !last || !first->timed || !last->timed || first->recorded == 0 || last->recorded == 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!first->done() || !last->done()) return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>(static_cast<double>(last->time_us) - static_cast<double>(first->time_us)) / 1e3f;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
