// Streams.
#include "cuda_api.hpp"

#include <algorithm>

#include "../event.hpp"

using namespace allranks::sim;

namespace {

// Measured: the arguments are looked at before the context. [cuda.h] A priority beyond the range is the nearest one.
CUresult create(Call call, CUstream* stream, unsigned flags, int priority) {
  return entry(call, Needs::kInit, [&](const Process& process) {
    if (stream == nullptr || (flags != CU_STREAM_DEFAULT && flags != CU_STREAM_NON_BLOCKING)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult result = check_context(process); result != CUDA_SUCCESS) return result;
    const Stream::Kind kind = flags == CU_STREAM_NON_BLOCKING ? Stream::Kind::kNonBlocking : Stream::Kind::kBlocking;
    *stream = process.current_context()->streams->create(kind, std::clamp(priority, kGreatestPriority, kLeastPriority));
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int flags) {
  return create(Call::kStreamCreate, stream, flags, kLeastPriority);
}

// Priorities are kept, and have no effect on a simulated device.
CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  return create(Call::kStreamCreateWithPriority, stream, flags, priority);
}

CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
  return entry(Call::kStreamDestroy, Needs::kInit, [&](Process& process) {
    for (const Context* context : process.contexts()) {
      if (context->streams->destroy(handle)) return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  return entry_on_stream(Call::kStreamSynchronize, handle, [](Process& process, Stream& stream) {
    const CUresult result = stream.synchronize("cuStreamSynchronize");
    process.pools.synchronised();
    return result;
  });
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  return entry_on_stream(Call::kStreamQuery, handle, [](Process& process, const Stream& stream) {
    if (!stream.idle()) process.node().turnstile.give_way();
    return stream.idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  return entry_on_stream(Call::kStreamWaitEvent, handle, [&](Process& process, Stream& stream) {
    if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;  // measured
    const std::shared_ptr<Event> event = find_event(process, event_handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_NOT_SUPPORTED;
    EventTable::wait_in(event, stream, process.node().turnstile);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return entry_on_stream(Call::kStreamGetFlags, handle, [&](Process&, const Stream& stream) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream.kind() == Stream::Kind::kNonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int* priority) {
  return entry_on_stream(Call::kStreamGetPriority, handle, [&](Process&, const Stream& stream) {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream.priority;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return entry_on_stream(Call::kStreamGetCtx, handle, [&](Process&, const Stream& stream) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = stream.context().handle();
    return CUDA_SUCCESS;
  });
}

// [cuda.h] Unique while the program runs; default streams have one too.
CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long* id) {
  return entry_on_stream(Call::kStreamGetId, handle, [&](Process&, const Stream& stream) {
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = stream.id;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return entry_on_stream(Call::kStreamGetDevice, handle, [&](Process&, const Stream& stream) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = stream.context().device;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
