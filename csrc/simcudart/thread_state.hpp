// What the runtime keeps for each thread: its device, its last error, and launches that the compiler has begun.
//
// Plain data without destructors: functions that run when the program ends may still call the runtime.
#ifndef ALLRANKS_SIMCUDART_THREAD_STATE_HPP_
#define ALLRANKS_SIMCUDART_THREAD_STATE_HPP_

#include <cuda.h>
#include <driver_types.h>
#include <vector_types.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace allranks::cudart {

// What stands between <<< and >>>.
struct LaunchConfiguration {
  unsigned grid[3];
  unsigned block[3];
  std::size_t shared_bytes;
  cudaStream_t stream;
};

struct ThreadState {
  static constexpr std::size_t kDeepest = 64;  // launches in the arguments of launches

  cudaError_t last_error = cudaSuccess;
  int device = 0;
  // The primary context that this library made current, and how often its device had been reset by then.
  CUcontext context = nullptr;
  std::uint64_t reset_count = 0;
  std::array<LaunchConfiguration, kDeepest> launches{};
  std::size_t launch_count = 0;
};

ThreadState& this_thread();

}  // namespace allranks::cudart

#endif  // ALLRANKS_SIMCUDART_THREAD_STATE_HPP_
