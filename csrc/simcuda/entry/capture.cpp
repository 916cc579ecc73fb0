// What can be asked about stream capture. Capture itself is not simulated: cuStreamBeginCapture says so.
#include "cuda_api.hpp"

using namespace allranks::sim;

extern "C" {

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return entry_on_stream(Call::kStreamIsCapturing, stream, [&](const Process&, const Stream&) {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  });
}

// [cuda.h] Without a capture nothing but the status is answered.
CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph*,
                                        const CUgraphNode**, const CUgraphEdgeData**, size_t*) {
  return entry_on_stream(Call::kStreamGetCaptureInfo, stream, [&](const Process&, const Stream&) {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  });
}

// [cuda.h] The calling thread's mode, which is global from the start, is exchanged for the given one.
CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return entry(Call::kThreadExchangeStreamCaptureMode, Needs::kInit, [&](const Process&) {
    if (mode == nullptr || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    const int wanted = *mode;
    *mode = static_cast<CUstreamCaptureMode>(this_thread().capture_mode);
    this_thread().capture_mode = wanted;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
