// Streams.
#include "cuda_api.hpp"

#include "../event.hpp"

using namespace allranks::sim;

namespace {

// Calls body(stream) for a valid stream handle.
template <typename Body>
CUresult with_stream(Call call, CUstream handle, const Body& body) {
  return entry(call, Needs::kContext, [&](Process& process) {
    Stream* const stream = find_stream(process, handle);
    return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : body(process, *stream);
  });
}

CUresult create(Call call, CUstream* stream, unsigned flags) {
  return entry_in_context(call, [&](Process&, const Context& context) {
    if (stream == nullptr || (flags != CU_STREAM_DEFAULT && flags != CU_STREAM_NON_BLOCKING)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *stream =
        context.streams->create(flags == CU_STREAM_NON_BLOCKING ? Stream::Kind::kNonBlocking : Stream::Kind::kBlocking);
    return CUDA_SUCCESS;
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned int flags) {
  return create(Call::kStreamCreate, stream, flags);
}

// Priorities have no effect on a simulated device.
CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int) {
  return create(Call::kStreamCreateWithPriority, stream, flags);
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
  return with_stream(Call::kStreamSynchronize, handle, [](Process& process, Stream& stream) {
    const CUresult result = stream.synchronize("cuStreamSynchronize");
    process.pools.synchronised();
    return result;
  });
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  return with_stream(Call::kStreamQuery, handle, [](Process& process, const Stream& stream) {
    if (!stream.idle()) process.node().turnstile.give_way();
    return stream.idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  return with_stream(Call::kStreamWaitEvent, handle, [&](Process& process, Stream& stream) {
    if ((flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;  // measured
    const std::shared_ptr<Event> event = find_event(process, event_handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_NOT_SUPPORTED;
    EventTable::wait_in(event, stream, process.node().turnstile);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return with_stream(Call::kStreamGetFlags, handle, [&](Process&, const Stream& stream) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream.kind() == Stream::Kind::kNonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int* priority) {
  return with_stream(Call::kStreamGetPriority, handle, [&](Process&, const Stream&) {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *priority = 0;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return with_stream(Call::kStreamGetCtx, handle, [&](Process&, const Stream& stream) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = stream.context().handle();
    return CUDA_SUCCESS;
  });
}

// [cuda.h] Unique while the program runs; default streams have one too.
CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long* id) {
  return with_stream(Call::kStreamGetId, handle, [&](Process&, const Stream& stream) {
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *id = stream.id;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return with_stream(Call::kStreamGetDevice, handle, [&](Process&, const Stream& stream) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = stream.context().device;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
