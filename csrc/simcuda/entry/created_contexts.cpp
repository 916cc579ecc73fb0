// Contexts besides the primary ones, and what a context can be told. What cuda.h does not say is an [assumption].
#include "cuda_api.hpp"

using namespace allranks::sim;

namespace {

// Flags say how a host thread waits, which makes no difference here.
bool known_flags(unsigned flags) {
  constexpr unsigned kKnown = CU_CTX_SCHED_MASK | CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_SYNC_MEMOPS;
  const unsigned scheduling = flags & CU_CTX_SCHED_MASK;
  return (flags & ~kKnown) == 0 && scheduling != 3 && scheduling <= CU_CTX_SCHED_BLOCKING_SYNC;
}

bool settable(CUlimit limit) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE: return true;
    default: return false;
  }
}

}  // namespace

extern "C" {

// [cuda.h] The new context is current to the calling thread. Resource limits of its own are for MPS, which is not
// simulated.
CUresult CUDAAPI cuCtxCreate(CUcontext* made, CUctxCreateParams* parameters, unsigned int flags, CUdevice device) {
  return entry(Call::kCtxCreate, Needs::kInit, [&](Process& process) {
    if (made == nullptr || !known_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= process.node().machine.device_count) return CUDA_ERROR_INVALID_DEVICE;
    if (parameters != nullptr && (parameters->execAffinityParams != nullptr || parameters->numExecAffinityParams != 0 ||
                                  parameters->cigParams != nullptr)) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    Context& context = process.create_context(device);
    context.flags = flags;
    this_thread().contexts.push_back(&context);
    *made = context.handle();
    return CUDA_SUCCESS;
  });
}

// [cuda.h] Gives back what the context holds, and takes it off the calling thread's stack if it is on top; other
// threads keep it, and find that it is destroyed. [assumption] A primary context is INVALID_CONTEXT.
CUresult CUDAAPI cuCtxDestroy(CUcontext handle) {
  return entry(Call::kCtxDestroy, Needs::kInit, [&](Process& process) {
    Context* const context = process.context_with(handle);
    if (context == nullptr || context->is_primary()) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult result = process.drop_context(*context); result != CUDA_SUCCESS) return result;
    context->retains = 0;
    auto& stack = this_thread().contexts;
    if (!stack.empty() && stack.back() == context) stack.pop_back();
    return CUDA_SUCCESS;
  });
}

// [cuda.h] Of the current context for null; unique in the process, and never used again.
CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return entry(Call::kCtxGetId, Needs::kInit, [&](Process& process) {
    const Context* const context = handle == nullptr ? process.current_context() : process.context_with(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!context->active) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = context->is_primary() ? static_cast<std::uint64_t>(context->device) + 1 : kMostDevices + context->serial;
    return CUDA_SUCCESS;
  });
}

// [cuda.h] The driver may change the value to what it can do; here it is kept. Nothing depends on it.
CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
  return entry_in_context(Call::kCtxSetLimit, [&](const Process&, Context& context) {
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (!settable(limit)) return CUDA_ERROR_INVALID_VALUE;
    context.limits[limit] = value;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* cache) {
  return entry_in_context(Call::kCtxGetCacheConfig, [&](const Process&, const Context& context) {
    if (cache == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *cache = context.cache;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache cache) {
  return entry_in_context(Call::kCtxSetCacheConfig, [&](const Process&, Context& context) {
    if (cache > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
    context.cache = cache;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
