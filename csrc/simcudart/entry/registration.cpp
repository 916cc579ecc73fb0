// What nvcc's host code calls: registration at start-up, and the two halves of a launch.
//
// Source: crt/host_runtime.h, which nvcc puts into every program. A kernel's handle is the registry's record of it.
#include "../call.hpp"
#include "../registry.hpp"
#include "../thread_state.hpp"

using namespace allranks::cudart;

#define ALLRANKS_COMPILER extern "C" __attribute__((visibility("default")))

namespace {

// As fatbinary_section.h has it.
struct FatBinaryWrapper {
  int magic;
  int version;
  const void* image;
  void* more;
};

FatBinary* binary_of(void** handle) { return reinterpret_cast<FatBinary*>(handle); }

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the names are the compiler's.

ALLRANKS_COMPILER void** CUDARTAPI __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(registry().add_binary(static_cast<const FatBinaryWrapper*>(wrapper)->image));
}

ALLRANKS_COMPILER void CUDARTAPI __cudaRegisterFatBinaryEnd(void**) {}

ALLRANKS_COMPILER void CUDARTAPI __cudaUnregisterFatBinary(void** handle) {
  registry().remove_binary(binary_of(handle));
}

ALLRANKS_COMPILER char CUDARTAPI __cudaInitModule(void**) { return 1; }

ALLRANKS_COMPILER void CUDARTAPI __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int,
                                                        uint3*, uint3*, dim3*, dim3*, int*) {
  registry().add_kernel(binary_of(handle), host, name);
}

ALLRANKS_COMPILER void CUDARTAPI __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t size,
                                                   int, int) {
  registry().add_variable(binary_of(handle), host, name, size);
}

ALLRANKS_COMPILER void CUDARTAPI __cudaRegisterManagedVar(void** handle, void**, char*, const char*, int, size_t, int,
                                                          int) {
  binary_of(handle)->has_managed = true;
}

ALLRANKS_COMPILER unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                                 CUstream_st* stream) {
  ThreadState& thread = this_thread();
  if (thread.launch_count == ThreadState::kDeepest) return 1;
  thread.launches[thread.launch_count++] = {.grid = {grid.x, grid.y, grid.z},
                                            .block = {block.x, block.y, block.z},
                                            .shared_bytes = shared_bytes,
                                            .stream = stream};
  return 0;
}

ALLRANKS_COMPILER cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                                                   void* stream) {
  ThreadState& thread = this_thread();
  if (thread.launch_count == 0) return remember(cudaErrorMissingConfiguration);
  const LaunchConfiguration& last = thread.launches[--thread.launch_count];
  *grid = {last.grid[0], last.grid[1], last.grid[2]};
  *block = {last.block[0], last.block[1], last.block[2]};
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

ALLRANKS_COMPILER cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t* handle, const void* host) {
  Kernel* const kernel = registry().kernel_of(host);
  if (kernel == nullptr) return remember(cudaErrorInvalidDeviceFunction);
  *handle = reinterpret_cast<cudaKernel_t>(kernel);
  return cudaSuccess;
}

extern "C" cudaError_t CUDARTAPI cudaGetKernel(cudaKernel_t* handle, const void* host) {
  return handle == nullptr ? remember(cudaErrorInvalidValue) : __cudaGetKernel(handle, host);
}

ALLRANKS_COMPILER cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t handle, dim3 grid, dim3 block, void** arguments,
                                                           size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(handle, grid, block, arguments, shared_bytes, stream);
}

ALLRANKS_COMPILER cudaError_t CUDARTAPI __cudaLaunchKernel_ptsz(cudaKernel_t handle, dim3 grid, dim3 block,
                                                                void** arguments, size_t shared_bytes,
                                                                cudaStream_t stream) {
  return cudaLaunchKernel(handle, grid, block, arguments, shared_bytes,
                          stream == nullptr ? cudaStreamPerThread : stream);
}

// NOLINTEND(bugprone-reserved-identifier)
