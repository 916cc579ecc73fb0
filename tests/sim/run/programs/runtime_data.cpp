// Memory, and what is done with it in which order: copies, streams, events, pools.
#include "runtime.hpp"

static void memory() {
  void* nothing = &nothing;
  OK(cudaMalloc(&nothing, 0));
  HOLDS(nothing == nullptr);
  OK(cudaFree(nullptr));
  char* const one = (char*)device_memory(1000);
  char* const other = (char*)device_memory(1000);
  char bytes[1000];
  OK(cudaMemset(one, 5, 1000));
  OK(cudaMemcpy(other, one, 1000, cudaMemcpyDeviceToDevice));
  OK(cudaMemset(other + 10, 6, 10));
  OK(cudaMemcpy(bytes, other, 1000, cudaMemcpyDefault));
  HOLDS(bytes[9] == 5 && bytes[10] == 6 && bytes[19] == 6 && bytes[20] == 5 && bytes[999] == 5);
  EXPECT(cudaErrorInvalidMemcpyDirection, cudaMemcpy(bytes, other, 10, (cudaMemcpyKind)9));
  OK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
  // Rows: 3 of 7 bytes out of a host array with 10 a row, and back.
  size_t pitch = 0;
  char* rows = nullptr;
  OK(cudaMallocPitch((void**)&rows, &pitch, 7, 3));
  HOLDS(pitch >= 7);
  OK(cudaMemset2D(rows, pitch, 1, 7, 3));
  for (int i = 0; i < 30; ++i) bytes[i] = (char)i;
  OK(cudaMemcpy2D(rows, pitch, bytes, 10, 6, 3, cudaMemcpyHostToDevice));
  char back[21];
  OK(cudaMemcpy2D(back, 7, rows, pitch, 7, 3, cudaMemcpyDeviceToHost));
  HOLDS(back[5] == 5 && back[6] == 1 && back[7] == 10 && back[19] == 25 && back[20] == 1);
  EXPECT(cudaErrorInvalidPitchValue, cudaMemcpy2D(back, 3, rows, pitch, 7, 3, cudaMemcpyDeviceToHost));
  size_t free_bytes = 0, total = 0;
  OK(cudaMemGetInfo(&free_bytes, &total));
  HOLDS(free_bytes < total);
  cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, one + 3));
  HOLDS(attributes.type == cudaMemoryTypeDevice && attributes.device == 0 && attributes.devicePointer == one + 3);
  OK(cudaPointerGetAttributes(&attributes, bytes));
  HOLDS(attributes.type == cudaMemoryTypeUnregistered && attributes.devicePointer == nullptr);
  OK(cudaFree(rows));
  OK(cudaFree(one));
  OK(cudaFree(other));
}

static void host() {
  char *one = nullptr, *other = nullptr, *on_device = nullptr;
  OK(cudaMallocHost((void**)&one, 5000));
  OK(cudaHostAlloc((void**)&other, 5000, cudaHostAllocMapped));
  for (int i = 0; i < 5000; ++i) HOLDS(other[i] == 0);
  OK(cudaHostGetDevicePointer((void**)&on_device, other, 0));
  OK(cudaMemset(on_device, 3, 100));
  OK(cudaDeviceSynchronize());
  HOLDS(other[99] == 3 && other[100] == 0);
  unsigned flags = 0;
  OK(cudaHostGetFlags(&flags, other));
  HOLDS(flags & cudaHostAllocMapped);
  cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, other));
  HOLDS(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == other);
  char* const own = (char*)malloc(8192);
  OK(cudaHostRegister(own, 8192, cudaHostRegisterDefault));
  EXPECT(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(own, 8192, cudaHostRegisterDefault));
  OK(cudaHostUnregister(own));
  free(own);
  OK(cudaFreeHost(one));
  OK(cudaFreeHost(other));
  OK(cudaFreeHost(nullptr));
}

static void count_call(void* data) { ++*(int*)data; }

static void count_callback(cudaStream_t, cudaError_t status, void* data) {
  if (status == cudaSuccess) ++*(int*)data;
}

static void streams() {
  cudaStream_t stream = nullptr, plain = nullptr, urgent = nullptr;
  unsigned flags = 9;
  int priority = 9, least = 9, greatest = 9, device = 9, calls = 0;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaStreamGetFlags(stream, &flags));
  HOLDS(flags == cudaStreamNonBlocking);
  OK(cudaStreamCreate(&plain));
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  HOLDS(least == 0 && greatest < 0);
  OK(cudaStreamCreateWithPriority(&urgent, cudaStreamDefault, greatest));
  OK(cudaStreamGetPriority(urgent, &priority));
  OK(cudaStreamGetDevice(urgent, &device));
  HOLDS(device == 0);
  char* const memory = (char*)device_memory(4096);
  char bytes[4];
  OK(cudaMemsetAsync(memory, 1, 4096, stream));
  OK(cudaMemcpyAsync(bytes, memory, 4, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  HOLDS(bytes[3] == 1);
  OK(cudaStreamQuery(stream));
  OK(cudaLaunchHostFunc(stream, count_call, &calls));
  OK(cudaStreamAddCallback(plain, count_callback, &calls, 0));
  OK(cudaDeviceSynchronize());
  HOLDS(calls == 2);
  for (cudaStream_t which : {(cudaStream_t) nullptr, cudaStreamLegacy, cudaStreamPerThread}) {
    OK(cudaMemsetAsync(memory, 2, 4096, which));
    OK(cudaStreamSynchronize(which));
    OK(cudaStreamQuery(which));
  }
  OK(cudaFree(memory));
  OK(cudaStreamDestroy(urgent));
  OK(cudaStreamDestroy(plain));
  OK(cudaStreamDestroy(stream));
}

static void events() {
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr, untimed = nullptr;
  float milliseconds = -1;
  OK(cudaStreamCreate(&stream));
  OK(cudaEventCreate(&begin));
  OK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
  OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  OK(cudaEventRecord(begin, stream));
  OK(cudaEventRecordWithFlags(end, stream, cudaEventRecordDefault));
  OK(cudaStreamWaitEvent(nullptr, end, 0));
  OK(cudaEventSynchronize(end));
  OK(cudaEventQuery(end));
  OK(cudaEventElapsedTime(&milliseconds, begin, end));
  HOLDS(milliseconds >= 0);
  OK(cudaEventRecord(untimed, stream));
  EXPECT(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, begin, untimed));
  for (cudaEvent_t event : {begin, end, untimed}) OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(stream));
}

static void pools() {
  cudaStream_t stream = nullptr;
  cudaMemPool_t pool = nullptr, standard = nullptr;
  char *one = nullptr, *other = nullptr, bytes[2];
  OK(cudaStreamCreate(&stream));
  OK(cudaMallocAsync((void**)&one, 1 << 20, stream));
  OK(cudaMemsetAsync(one, 4, 1 << 20, stream));
  OK(cudaMemcpyAsync(bytes, one, 2, cudaMemcpyDeviceToHost, stream));
  OK(cudaFreeAsync(one, stream));
  OK(cudaStreamSynchronize(stream));
  HOLDS(bytes[1] == 4);
  cudaMemPoolProps properties;
  memset(&properties, 0, sizeof properties);
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  OK(cudaMemPoolCreate(&pool, &properties));
  unsigned long long threshold = 1 << 22, kept = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  HOLDS(kept == threshold);
  cudaMemAccessDesc rights = {{cudaMemLocationTypeDevice, 1}, cudaMemAccessFlagsProtReadWrite};
  OK(cudaMemPoolSetAccess(pool, &rights, 1));
  cudaMemAccessFlags flags = cudaMemAccessFlagsProtNone;
  OK(cudaMemPoolGetAccess(&flags, pool, &rights.location));
  HOLDS(flags == cudaMemAccessFlagsProtReadWrite);
  OK(cudaMallocFromPoolAsync((void**)&other, 100, pool, stream));
  OK(cudaFreeAsync(other, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemPoolTrimTo(pool, 0));
  OK(cudaMemPoolDestroy(pool));
  OK(cudaDeviceGetDefaultMemPool(&standard, 0));
  OK(cudaDeviceGetMemPool(&pool, 0));
  HOLDS(pool == standard);
  OK(cudaStreamDestroy(stream));
}

int main(int count, char** arguments) {
  return run_part({{"memory", memory}, {"host", host}, {"streams", streams}, {"events", events}, {"pools", pools}},
                  count, arguments);
}
