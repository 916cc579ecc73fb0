// Copies between contexts, which need no peer access: each end is reached as its owner reaches it. Measured: the
// contexts only have to be there; memory of another one than was named is copied all the same.
#include "cuda_api.hpp"

#include "../copy.hpp"

using namespace allranks::sim;

namespace {

struct Peers {
  Access destination;
  Access source;
};

CUresult code_of(AccessFault fault) {
  if (fault == AccessFault::kNone) return CUDA_SUCCESS;
  return fault == AccessFault::kMulticastUnbound ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_INVALID_VALUE;
}

// Appends the copy to the stream; `number`: of that work, 0 if there is none.
CUresult enqueue(Process& process, Stream& stream, CUdeviceptr destination, CUcontext to, CUdeviceptr source,
                 CUcontext from, std::uint64_t size, std::uint64_t* number) {
  const Context* const writer = process.context_with(to);
  const Context* const reader = process.context_with(from);
  *number = 0;
  if (writer == nullptr || reader == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!writer->active || !reader->active) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (size == 0) return CUDA_SUCCESS;
  const Label& label = this_thread().label;
  const Peers peers{
      .destination = {.process = process,
                      .device = reaching_device(process, destination, writer->device),
                      .label = label},
      .source = {.process = process, .device = reaching_device(process, source, reader->device), .label = label}};
  AccessFault fault = check_range(peers.destination, destination, size, true);
  if (fault == AccessFault::kNone) fault = check_range(peers.source, source, size, false);
  if (fault != AccessFault::kNone) return code_of(fault);
  *number = stream.enqueue(name_of(this_thread().call), [=] {
    return code_of(copy_bytes(peers.destination, destination, peers.source, source, size));
  });
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr destination, CUcontext to, CUdeviceptr source, CUcontext from, size_t size) {
  return entry_in_context(Call::kMemcpyPeer, [&](Process& process, const Context& context) {
    std::uint64_t number = 0;
    Stream& stream = context.streams->legacy();
    const CUresult result = enqueue(process, stream, destination, to, source, from, size, &number);
    return result != CUDA_SUCCESS || number == 0 ? result : stream.wait_for(number, "cuMemcpyPeer");
  });
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext to, CUdeviceptr source, CUcontext from,
                                   size_t size, CUstream handle) {
  return entry_in_context(Call::kMemcpyPeerAsync, [&](Process& process, const Context&) {
    std::uint64_t number = 0;
    Stream* const stream = find_stream(process, handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return enqueue(process, *stream, destination, to, source, from, size, &number);
  });
}

}  // extern "C"
