// Primary contexts, and the current context of a thread.
#include "cuda_api.hpp"

using namespace allranks::sim;

namespace {

template <typename Body>
CUresult with_device(Call call, CUdevice device, const Body& body) {
  return entry(call, Needs::kInit, [&](Process& process) {
    if (device < 0 || device >= process.node().machine.device_count) return CUDA_ERROR_INVALID_DEVICE;
    return body(process);
  });
}

// Opens or closes to the context's device the plain allocations of the peer.
void set_peer_rights(Process& process, const Context& context, const Context& peer, bool open) {
  if (context.device == peer.device) return;
  const auto device = static_cast<std::size_t>(context.device);
  for (auto& [address, mapping] : process.space.mappings) {
    if (mapping.origin != Origin::kPlain || mapping.context != &peer) continue;
    mapping.rights.read.set(device, open);
    mapping.rights.write.set(device, open);
  }
  ++process.translation_generation;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return with_device(Call::kDevicePrimaryCtxRetain, device, [&](Process& process) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = process.retain_context(device).handle();
    return CUDA_SUCCESS;
  });
}

// Measured: INVALID_CONTEXT without a retain to give back.
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  return with_device(Call::kDevicePrimaryCtxRelease, device, [&](Process& process) {
    Context& context = process.primary_context(device);
    if (context.retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (context.retains == 1) {
      if (const CUresult result = process.drop_context(context); result != CUDA_SUCCESS) return result;
    }
    --context.retains;
    return CUDA_SUCCESS;
  });
}

// Measured: the context is gone, the retains stay to be given back.
CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
  return with_device(Call::kDevicePrimaryCtxReset, device,
                     [&](Process& process) { return process.drop_context(process.primary_context(device)); });
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return with_device(Call::kDevicePrimaryCtxGetState, device, [&](Process& process) {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Context& context = process.primary_context(device);
    *flags = context.flags;
    *active = context.active ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

// Flags say how a host thread waits, which makes no difference here.
CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return with_device(Call::kDevicePrimaryCtxSetFlags, device, [&](Process& process) {
    constexpr unsigned kKnown = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX;
    const unsigned scheduling = flags & CU_CTX_SCHED_MASK;
    if ((flags & ~kKnown) != 0 || scheduling == 3 || scheduling > CU_CTX_SCHED_BLOCKING_SYNC) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    process.primary_context(device).flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  return entry(Call::kCtxGetCurrent, Needs::kInit, [&](Process& process) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Context* const current = process.current_context();
    *context = current == nullptr ? nullptr : current->handle();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  return entry(Call::kCtxSetCurrent, Needs::kInit, [&](Process& process) {
    auto& stack = this_thread().contexts;
    Context* const found = context == nullptr ? nullptr : process.context_with(context);
    if (context != nullptr && found == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!stack.empty()) stack.pop_back();
    if (found != nullptr) stack.push_back(found);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  return entry(Call::kCtxPushCurrent, Needs::kInit, [&](Process& process) {
    Context* const found = process.context_with(context);
    if (found == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    this_thread().contexts.push_back(found);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
  return entry(Call::kCtxPopCurrent, Needs::kInit, [&](Process& process) {
    const Context* const current = process.current_context();
    if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = current->handle();
    this_thread().contexts.pop_back();
    return CUDA_SUCCESS;
  });
}

// Measured: also of a context that was destroyed.
CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  return entry(Call::kCtxGetDevice, Needs::kInit, [&](Process& process) {
    const Context* const context = process.current_context();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext, unsigned int* version) {
  return entry(Call::kCtxGetApiVersion, Needs::kInit, [&](Process&) {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

// Measured: mapping host memory is always on; also of a context that was destroyed.
CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  return entry(Call::kCtxGetFlags, Needs::kInit, [&](Process& process) {
    const Context* const context = process.current_context();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context->flags | CU_CTX_MAP_HOST;
    return CUDA_SUCCESS;
  });
}

// Measured on H200 with driver 580.
CUresult CUDAAPI cuCtxGetLimit(size_t* value, CUlimit limit) {
  return entry_in_context(Call::kCtxGetLimit, [&](Process&, const Context& context) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const auto set = context.limits.find(limit); set != context.limits.end()) {
      *value = set->second;
      return CUDA_SUCCESS;
    }
    switch (limit) {
      case CU_LIMIT_STACK_SIZE: *value = 1024; return CUDA_SUCCESS;
      case CU_LIMIT_PRINTF_FIFO_SIZE: *value = 8650752; return CUDA_SUCCESS;
      case CU_LIMIT_MALLOC_HEAP_SIZE: *value = 8388608; return CUDA_SUCCESS;
      case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: *value = 2048; return CUDA_SUCCESS;
      case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: *value = 64; return CUDA_SUCCESS;
      case CU_LIMIT_PERSISTING_L2_CACHE_SIZE: *value = 11796480; return CUDA_SUCCESS;
      case CU_LIMIT_SHMEM_SIZE: *value = 232448; return CUDA_SUCCESS;
      case CU_LIMIT_CIG_ENABLED: *value = 0; return CUDA_SUCCESS;
      case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED: return CUDA_ERROR_UNSUPPORTED_LIMIT;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return entry_in_context(Call::kCtxGetStreamPriorityRange, [&](Process&, const Context&) {
    if (least != nullptr) *least = kLeastPriority;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSynchronize(void) {
  return entry_in_context(Call::kCtxSynchronize, [](Process& process, const Context& context) {
    const CUresult result = context.streams->synchronize_all("cuCtxSynchronize");
    process.pools.synchronised();
    return result;
  });
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return entry_in_context(Call::kCtxEnablePeerAccess, [&](Process& process, Context& context) {
    const Context* const other = process.context_with(peer);
    if (other == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (other == &context) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;  // measured
    if (!other->active) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (process.node().machine.peer_access == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (!context.peers.insert(other).second) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    set_peer_rights(process, context, *other, true);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
  return entry_in_context(Call::kCtxDisablePeerAccess, [&](Process& process, Context& context) {
    const Context* const other = process.context_with(peer);
    if (process.has_destroyed(peer)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;  // measured
    if (other == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context.peers.erase(other) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    set_peer_rights(process, context, *other, false);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
