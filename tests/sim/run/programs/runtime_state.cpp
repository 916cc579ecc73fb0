// What a process has of the runtime library: devices, errors, contexts, children, captures, kernels.
#include <cuda.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime.hpp"

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
  return run_part({{"devices", devices},
                   {"errors", errors},
                   {"sticky", sticky},
                   {"contexts", contexts},
                   {"forks", forks},
                   {"capture", capture},
                   {"launches", launches}},
                  count, arguments);
}
