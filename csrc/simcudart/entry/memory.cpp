// Memory of devices, page-locked memory of the host, and what is known of a pointer.
#include "../call.hpp"

using namespace allranks::cudart;

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, [&] { return ALLRANKS_DRIVER(cuMemAlloc)(address_in(pointer), bytes); });
}

cudaError_t CUDARTAPI cudaMallocManaged(void** pointer, size_t bytes, unsigned int flags) {
  return call(Needs::kContext, [&] {
    return pointer == nullptr || bytes == 0 ? CUDA_ERROR_INVALID_VALUE
                                            : ALLRANKS_DRIVER(cuMemAllocManaged)(address_in(pointer), bytes, flags);
  });
}

// Elements of 4 bytes: the smallest that the driver takes, and its pitch fits larger ones too.
cudaError_t CUDARTAPI cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  return call(Needs::kContext, [&] {
    if (pointer == nullptr || pitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pointer = nullptr;
    *pitch = 0;
    return width == 0 || height == 0 ? CUDA_SUCCESS
                                     : ALLRANKS_DRIVER(cuMemAllocPitch)(address_in(pointer), pitch, width, height, 4);
  });
}

// Of nothing it makes the context all the same, which programs use.
cudaError_t CUDARTAPI cudaFree(void* pointer) {
  return call(Needs::kContext,
              [&] { return pointer == nullptr ? CUDA_SUCCESS : ALLRANKS_DRIVER(cuMemFree)(address_of(pointer)); });
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t* free, size_t* total) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuMemGetInfo)(free, total); });
}

cudaError_t CUDARTAPI cudaMallocHost(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, [&] { return ALLRANKS_DRIVER(cuMemHostAlloc)(pointer, bytes, 0); });
}

// Flags have the driver's numbers.
cudaError_t CUDARTAPI cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return allocate(pointer, bytes, [&] { return ALLRANKS_DRIVER(cuMemHostAlloc)(pointer, bytes, flags); });
}

cudaError_t CUDARTAPI cudaFreeHost(void* pointer) {
  return call(Needs::kContext,
              [&] { return pointer == nullptr ? CUDA_SUCCESS : ALLRANKS_DRIVER(cuMemFreeHost)(pointer); });
}

cudaError_t CUDARTAPI cudaHostRegister(void* pointer, size_t bytes, unsigned int flags) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuMemHostRegister)(pointer, bytes, flags); });
}

cudaError_t CUDARTAPI cudaHostUnregister(void* pointer) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuMemHostUnregister)(pointer); });
}

cudaError_t CUDARTAPI cudaHostGetDevicePointer(void** device, void* host, unsigned int flags) {
  return call(Needs::kContext,
              [&] { return ALLRANKS_DRIVER(cuMemHostGetDevicePointer)(address_in(device), host, flags); });
}

cudaError_t CUDARTAPI cudaHostGetFlags(unsigned int* flags, void* host) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuMemHostGetFlags)(flags, host); });
}

// [cuda_runtime_api.h] Memory that no driver call has made is no error: its type is unregistered.
cudaError_t CUDARTAPI cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call(Needs::kContext, [&] {
    if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    unsigned type = 0;
    int device = 0;
    unsigned managed = 0;
    CUdeviceptr on_device = 0;
    void* on_host = nullptr;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                    CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* answers[] = {&type, &device, &managed, &on_device, static_cast<void*>(&on_host)};
    const CUresult result = ALLRANKS_DRIVER(cuPointerGetAttributes)(5, wanted, answers, address_of(pointer));
    if (result != CUDA_SUCCESS) return result;
    *attributes = {.type = managed != 0 ? cudaMemoryTypeManaged : static_cast<cudaMemoryType>(type),
                   .device = device,
                   .devicePointer = reinterpret_cast<void*>(on_device),
                   .hostPointer = on_host};
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
