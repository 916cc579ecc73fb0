// Events, and handles by which other processes open events and memory.
#include "../call.hpp"

#include <cstring>

using namespace allranks::cudart;

namespace {

// Both handles are as many bytes that only the driver understands.
template <typename To, typename From>
To handle_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t* event) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuEventCreate)(event, CU_EVENT_DEFAULT); });
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuEventCreate)(event, flags); });
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuEventDestroy)(event); });
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuEventRecord)(event, stream); });
}

cudaError_t CUDARTAPI cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuEventRecordWithFlags)(event, stream, flags); });
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuEventQuery)(event); });
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuEventSynchronize)(event); });
}

cudaError_t CUDARTAPI cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuEventElapsedTime)(milliseconds, start, end); });
}

cudaError_t CUDARTAPI cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return call(Needs::kContext, [&] {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUipcEventHandle found{};
    const CUresult result = ALLRANKS_DRIVER(cuIpcGetEventHandle)(&found, event);
    if (result == CUDA_SUCCESS) *handle = handle_as<cudaIpcEventHandle_t>(found);
    return result;
  });
}

cudaError_t CUDARTAPI cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return call(Needs::kContext,
              [&] { return ALLRANKS_DRIVER(cuIpcOpenEventHandle)(event, handle_as<CUipcEventHandle>(handle)); });
}

cudaError_t CUDARTAPI cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  return call(Needs::kContext, [&] {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUipcMemHandle found{};
    const CUresult result = ALLRANKS_DRIVER(cuIpcGetMemHandle)(&found, address_of(pointer));
    if (result == CUDA_SUCCESS) *handle = handle_as<cudaIpcMemHandle_t>(found);
    return result;
  });
}

cudaError_t CUDARTAPI cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuIpcOpenMemHandle)(address_in(pointer), handle_as<CUipcMemHandle>(handle), flags);
  });
}

cudaError_t CUDARTAPI cudaIpcCloseMemHandle(void* pointer) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuIpcCloseMemHandle)(address_of(pointer)); });
}

}  // extern "C"
