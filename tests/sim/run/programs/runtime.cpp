// A program of the runtime library, as somebody would write it who knows nothing of the simulator: its first argument
// says which part of the library it uses. It ends with 0, or at the first call that does not answer what it should.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>

#define EXPECT(wanted, call)                                                                                          \
  do {                                                                                                                \
    const cudaError_t got = (call);                                                                                   \
    if (got != (wanted)) {                                                                                            \
      fprintf(stderr, "line %d: %s: %s, not %s\n", __LINE__, #call, cudaGetErrorName(got), cudaGetErrorName(wanted)); \
      exit(3);                                                                                                        \
    }                                                                                                                 \
  } while (0)
#define OK(call) EXPECT(cudaSuccess, call)
#define HOLDS(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
      exit(3);                                                        \
    }                                                                 \
  } while (0)

static void* device_memory(size_t bytes) {
  void* pointer = nullptr;
  OK(cudaMalloc(&pointer, bytes));
  HOLDS(pointer != nullptr);
  return pointer;
}

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

static void devices() {
  int count = 0, device = 9, value = 0, can = 0;
  char bus[32];
  OK(cudaGetDeviceCount(&count));
  HOLDS(count == 8);
  OK(cudaGetDevice(&device));
  HOLDS(device == 0);
  OK(cudaSetDevice(3));
  OK(cudaGetDevice(&device));
  HOLDS(device == 3);
  cudaDeviceProp properties;
  memset(&properties, 0xff, sizeof properties);
  OK(cudaGetDeviceProperties(&properties, 3));
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 3));
  HOLDS(properties.multiProcessorCount == value && value > 0);
  HOLDS(properties.major == 9 && properties.warpSize == 32 && properties.maxThreadsDim[2] == 64);
  HOLDS(properties.totalGlobalMem > 1ull << 36 && properties.pciBusID == 4 && properties.reserved[0] == 0);
  HOLDS(strstr(properties.name, "GPU") != nullptr && properties.sharedMemPerBlockOptin == 232448);
  OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 3));
  OK(cudaDeviceGetByPCIBusId(&device, bus));
  HOLDS(device == 3);
  OK(cudaDeviceCanAccessPeer(&can, 3, 1));
  HOLDS(can == 1);
  OK(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 3, 1));
  OK(cudaSetDevice(1));
  char* const there = (char*)device_memory(100);
  OK(cudaMemset(there, 8, 100));
  OK(cudaSetDevice(3));
  char *const here = (char*)device_memory(100), bytes[100];
  OK(cudaMemcpyPeer(here, 3, there, 1, 100));
  OK(cudaMemcpy(bytes, here, 100, cudaMemcpyDeviceToHost));
  HOLDS(bytes[99] == 8);
  OK(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
  OK(cudaMemset(there, 9, 100));
  OK(cudaDeviceDisablePeerAccess(1));
  size_t limit = 0;
  OK(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
  HOLDS(limit == 1024);
  OK(cudaFree(here));
  OK(cudaFree(there));
  int version = 0;
  OK(cudaRuntimeGetVersion(&version));
  HOLDS(version / 1000 == 13);
  OK(cudaDriverGetVersion(&version));
  HOLDS(version >= 13000);
}

// What it does on a device of another thread's, with an error of its own.
static void* other_thread(void*) {
  int device = 9;
  OK(cudaPeekAtLastError());
  OK(cudaGetDevice(&device));
  HOLDS(device == 0);
  OK(cudaSetDevice(2));
  EXPECT(cudaErrorInvalidDevice, cudaSetDevice(-1));
  EXPECT(cudaErrorInvalidDevice, cudaPeekAtLastError());
  return nullptr;
}

static void errors() {
  HOLDS(strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue") == 0);
  HOLDS(strcmp(cudaGetErrorString(cudaErrorInvalidValue), "invalid argument") == 0);
  HOLDS(strcmp(cudaGetErrorName((cudaError_t)12345), "unrecognized error code") == 0);
  HOLDS(strcmp(cudaGetErrorString((cudaError_t)-1), "unrecognized error code") == 0);
  OK(cudaGetLastError());
  int device = 9;
  OK(cudaSetDevice(1));
  EXPECT(cudaErrorInvalidDevice, cudaSetDevice(99));
  OK(cudaGetDevice(&device));  // a success in between changes nothing
  HOLDS(device == 1);
  pthread_t thread;
  pthread_create(&thread, nullptr, other_thread, nullptr);
  pthread_join(thread, nullptr);
  OK(cudaGetDevice(&device));
  HOLDS(device == 1);
  EXPECT(cudaErrorInvalidDevice, cudaPeekAtLastError());
  EXPECT(cudaErrorInvalidDevice, cudaGetLastError());
  OK(cudaGetLastError());
  EXPECT(cudaErrorInvalidValue, cudaFree((void*)4096));
  EXPECT(cudaErrorInvalidValue, cudaGetLastError());
  EXPECT(cudaErrorInvalidDeviceFunction, cudaLaunchKernel((void*)errors, dim3{1, 1, 1}, dim3{1, 1, 1}, nullptr, 0, 0));
  EXPECT(cudaErrorInvalidDeviceFunction, cudaGetLastError());
  cudaGraph_t graph = nullptr;
  EXPECT(cudaErrorNotSupported, cudaGraphCreate(&graph, 0));
  EXPECT(cudaErrorNotSupported, cudaGetLastError());
}

template <typename Function>
static Function* entry_point(const char* name, Function*) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  OK(cudaGetDriverEntryPointByVersion(name, &found, 13000, cudaEnableDefault, &status));
  HOLDS(status == cudaDriverEntryPointSuccess && found != nullptr);
  return (Function*)found;
}
#define DRIVER(name) entry_point(#name, (decltype(&name))nullptr)

// Writes through a multicast address that nothing is bound to, which breaks the context.
static void sticky() {
  OK(cudaFree(nullptr));
  CUmulticastObjectProp wanted = {1, 2 << 20, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0};
  CUmemGenericAllocationHandle team = 0;
  CUdeviceptr address = 0;
  CUmemAccessDesc rights = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  HOLDS(DRIVER(cuMulticastCreate)(&team, &wanted) == CUDA_SUCCESS);
  HOLDS(DRIVER(cuMulticastAddDevice)(team, 0) == CUDA_SUCCESS);
  HOLDS(DRIVER(cuMemAddressReserve)(&address, 2 << 20, 0, 0, 0) == CUDA_SUCCESS);
  HOLDS(DRIVER(cuMemMap)(address, 2 << 20, 0, team, 0) == CUDA_SUCCESS);
  HOLDS(DRIVER(cuMemSetAccess)(address, 2 << 20, &rights, 1) == CUDA_SUCCESS);
  EXPECT(cudaErrorIllegalAddress, cudaMemset((void*)address, 1, 8));
  void* pointer = nullptr;
  EXPECT(cudaErrorIllegalAddress, cudaMalloc(&pointer, 100));
  EXPECT(cudaErrorIllegalAddress, cudaGetLastError());
  EXPECT(cudaErrorIllegalAddress, cudaGetLastError());  // it stays
  EXPECT(cudaErrorIllegalAddress, cudaDeviceSynchronize());
  OK(cudaDeviceReset());
  OK(cudaGetLastError());
  OK(cudaMalloc(&pointer, 100));
  OK(cudaFree(pointer));
  void* none = &none;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSuccess;
  OK(cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &none, 13000, cudaEnableDefault, &status));
  HOLDS(none == nullptr && status == cudaDriverEntryPointSymbolNotFound);
}

// The program's own choice of a context is used, and left in place.
static void contexts() {
  CUcontext context = nullptr, current = nullptr;
  int device = 9;
  cudaPointerAttributes attributes;
  HOLDS(DRIVER(cuDevicePrimaryCtxRetain)(&context, 2) == CUDA_SUCCESS);
  HOLDS(DRIVER(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  OK(cudaGetDevice(&device));
  HOLDS(device == 2);
  void* const pointer = device_memory(100);
  OK(cudaPointerGetAttributes(&attributes, pointer));
  HOLDS(attributes.device == 2);
  HOLDS(DRIVER(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current == context);
  OK(cudaSetDevice(1));
  OK(cudaGetDevice(&device));
  HOLDS(device == 1);
  HOLDS(DRIVER(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
  OK(cudaGetDevice(&device));
  HOLDS(device == 2);
  OK(cudaFree(pointer));
  HOLDS(DRIVER(cuDevicePrimaryCtxRelease)(2) == CUDA_SUCCESS);
}

static void in_child(void (*run)()) {
  const pid_t child = fork();
  if (child == 0) {
    run();
    _exit(0);
  }
  int status = -1;
  HOLDS(waitpid(child, &status, 0) == child && status == 0);
}

// A child has a driver of its own until its parent has one, and none from then on.
static void forks() {
  in_child([] { OK(cudaFree(device_memory(100))); });
  OK(cudaFree(nullptr));
  in_child([] {
    void* pointer = nullptr;
    EXPECT(cudaErrorInitializationError, cudaMalloc(&pointer, 100));
    EXPECT(cudaErrorInitializationError, cudaGetLastError());
  });
  OK(cudaFree(device_memory(100)));
}

static void capture() {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  HOLDS(mode == cudaStreamCaptureModeGlobal);
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  HOLDS(mode == cudaStreamCaptureModeRelaxed);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  OK(cudaStreamIsCapturing(nullptr, &status));
  HOLDS(status == cudaStreamCaptureStatusNone);
}

// What nvcc puts into a program of one kernel and one variable.
extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
}

static void host_side_of_kernel() {}
static char host_side_of_variable[16];

static void launches() {
  static const char image[64] = "\x50\xed\x55\xba no kernel that anybody could execute";
  static const struct {
    int magic, version;
    const void* data;
    void* more;
  } wrapper = {0x466243b1, 1, image, nullptr};
  void** const binary = __cudaRegisterFatBinary((void*)&wrapper);
  __cudaRegisterFunction(binary, (const char*)host_side_of_kernel, (char*)"k", "some_kernel", -1, 0, 0, 0, 0, 0);
  __cudaRegisterVar(binary, host_side_of_variable, (char*)"v", "some_variable", 0, 16, 0, 0);
  __cudaRegisterFatBinaryEnd(binary);
  const dim3 grid = {2, 3, 1}, block = {32, 1, 1};
  int number = 0, blocks = 0;
  void* arguments[] = {&number};
  OK(cudaLaunchKernel((const void*)host_side_of_kernel, grid, block, arguments, 0, nullptr));
  // f<<<grid, block, 64, stream>>>(number), as nvcc has it
  HOLDS(__cudaPushCallConfiguration(grid, block, 64, cudaStreamPerThread) == 0);
  dim3 pushed_grid, pushed_block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  cudaKernel_t kernel = nullptr;
  OK(__cudaGetKernel(&kernel, (const void*)host_side_of_kernel));
  OK(__cudaPopCallConfiguration(&pushed_grid, &pushed_block, &shared_bytes, &stream));
  HOLDS(pushed_grid.y == 3 && pushed_block.x == 32 && shared_bytes == 64 && stream == cudaStreamPerThread);
  OK(__cudaLaunchKernel(kernel, pushed_grid, pushed_block, arguments, shared_bytes, stream));
  cudaLaunchConfig_t config;
  memset(&config, 0, sizeof config);
  config.gridDim = grid;
  config.blockDim = block;
  OK(cudaLaunchKernelExC(&config, (const void*)host_side_of_kernel, arguments));
  const char* name = nullptr;
  OK(cudaFuncGetName(&name, (const void*)host_side_of_kernel));
  HOLDS(strcmp(name, "some_kernel") == 0);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void*)host_side_of_kernel, 128, 0));
  HOLDS(blocks > 0);
  OK(cudaDeviceSynchronize());
  EXPECT(cudaErrorInvalidConfiguration,
         cudaLaunchKernel((const void*)host_side_of_kernel, dim3{0, 1, 1}, block, arguments, 0, nullptr));
  EXPECT(cudaErrorMissingConfiguration,
         __cudaPopCallConfiguration(&pushed_grid, &pushed_block, &shared_bytes, &stream));
  EXPECT(cudaErrorInvalidSymbol, cudaMemcpyToSymbol(&blocks, &number, 4, 0, cudaMemcpyHostToDevice));
  // The modules are gone with the context, and come again with the next.
  OK(cudaDeviceReset());
  OK(cudaLaunchKernel((const void*)host_side_of_kernel, grid, block, arguments, 0, nullptr));
  OK(cudaDeviceSynchronize());
  __cudaUnregisterFatBinary(binary);
  EXPECT(cudaErrorInvalidDeviceFunction,
         cudaLaunchKernel((const void*)host_side_of_kernel, grid, block, arguments, 0, nullptr));
}

int main(int count, char** arguments) {
  const struct {
    const char* name;
    void (*run)();
  } parts[] = {{"memory", memory},   {"host", host},         {"streams", streams},   {"events", events},
               {"pools", pools},     {"devices", devices},   {"errors", errors},     {"sticky", sticky},
               {"capture", capture}, {"launches", launches}, {"contexts", contexts}, {"forks", forks}};
  for (const auto& part : parts) {
    if (count == 2 && strcmp(arguments[1], part.name) == 0) {
      part.run();
      puts("as it should be");
      return 0;
    }
  }
  return 2;
}
