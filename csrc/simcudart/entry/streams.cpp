// Streams. 0, cudaStreamLegacy and cudaStreamPerThread have the driver's numbers.
#include "../call.hpp"

using namespace allranks::cudart;

extern "C" {

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t* stream) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamCreate)(stream, CU_STREAM_DEFAULT); });
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamCreate)(stream, flags); });
}

cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamCreateWithPriority)(stream, flags, priority); });
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamDestroy)(stream); });
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamSynchronize)(stream); });
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamQuery)(stream); });
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamWaitEvent)(stream, event, flags); });
}

cudaError_t CUDARTAPI cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamGetFlags)(stream, flags); });
}

cudaError_t CUDARTAPI cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamGetPriority)(stream, priority); });
}

cudaError_t CUDARTAPI cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamGetId)(stream, id); });
}

cudaError_t CUDARTAPI cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuStreamGetDevice)(stream, device); });
}

cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuLaunchHostFunc)(stream, function, data); });
}

// The callback is given a code of the driver's, which has the same number.
cudaError_t CUDARTAPI cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                            unsigned int flags) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuStreamAddCallback)(stream, reinterpret_cast<CUstreamCallback>(callback), data, flags);
  });
}

cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call(Needs::kDriver, [&] {
    return ALLRANKS_DRIVER(cuThreadExchangeStreamCaptureMode)(reinterpret_cast<CUstreamCaptureMode*>(mode));
  });
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuStreamIsCapturing)(stream, reinterpret_cast<CUstreamCaptureStatus*>(status));
  });
}

cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                               unsigned long long* id, cudaGraph_t* graph,
                                               const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                               size_t* count) {
  static_assert(sizeof(cudaGraphEdgeData) == sizeof(CUgraphEdgeData));
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuStreamGetCaptureInfo)(stream, reinterpret_cast<CUstreamCaptureStatus*>(status),
                                                   reinterpret_cast<cuuint64_t*>(id), graph, dependencies,
                                                   reinterpret_cast<const CUgraphEdgeData**>(edges), count);
  });
}

}  // extern "C"
