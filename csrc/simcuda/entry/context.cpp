// Primary contexts, and the current context of a thread. Contexts made with cuCtxCreate are not simulated.
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

// Opens or closes to `device` the plain allocations that the process has on the peer.
void set_peer_rights(Process& process, int device, int peer, bool open) {
  for (auto& [address, mapping] : process.space.mappings) {
    if (!mapping.plain || mapping.allocation->device != peer) continue;
    mapping.rights.read.set(static_cast<std::size_t>(device), open);
    mapping.rights.write.set(static_cast<std::size_t>(device), open);
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

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  return with_device(Call::kDevicePrimaryCtxRelease, device, [&](Process& process) {
    Context* const context = process.context_of(device);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (--context->retains == 0) process.drop_context(device);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice device) {
  return with_device(Call::kDevicePrimaryCtxReset, device, [&](Process& process) {
    process.drop_context(device);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  return with_device(Call::kDevicePrimaryCtxGetState, device, [&](Process& process) {
    const Context* const context = process.context_of(device);
    if (flags != nullptr) *flags = context == nullptr ? 0 : context->flags;
    if (active != nullptr) *active = context == nullptr ? 0 : 1;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return with_device(Call::kDevicePrimaryCtxSetFlags, device, [&](Process& process) {
    if (Context* const context = process.context_of(device)) context->flags = flags;
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
  return entry(Call::kCtxPopCurrent, Needs::kInit, [&](Process&) {
    auto& stack = this_thread().contexts;
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = stack.back()->handle();
    stack.pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  return entry_in_context(Call::kCtxGetDevice, [&](Process&, const Context& context) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = context.device;
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

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  return entry_in_context(Call::kCtxGetFlags, [&](Process&, const Context& context) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return entry_in_context(Call::kCtxGetStreamPriorityRange, [&](Process&, const Context&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxSynchronize(void) {
  return entry_in_context(Call::kCtxSynchronize, [](Process&, const Context& context) {
    return context.streams->synchronize_all("cuCtxSynchronize");
  });
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  return entry_in_context(Call::kCtxEnablePeerAccess, [&](Process& process, Context& context) {
    const Context* const other = process.context_with(peer);
    if (other == nullptr || other == &context) return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (process.node().machine.peer_access == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    const auto device = static_cast<std::size_t>(other->device);
    if (context.peers.test(device)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    context.peers.set(device);
    set_peer_rights(process, context.device, other->device, true);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer) {
  return entry_in_context(Call::kCtxDisablePeerAccess, [&](Process& process, Context& context) {
    const Context* const other = process.context_with(peer);
    if (other == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    const auto device = static_cast<std::size_t>(other->device);
    if (!context.peers.test(device)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    context.peers.reset(device);
    set_peer_rights(process, context.device, other->device, false);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
