// The GPU's side of platform.h.
//
// Not yet launched by anything in this project: it is compiled to keep device code one source.
#ifndef ALLRANKS_DEVICE_PLATFORM_GPU_H_
#define ALLRANKS_DEVICE_PLATFORM_GPU_H_

#include <cuda/atomic>

#include "layout.h"
#include "ptx.h"

namespace allranks::device {

// Bytes that a lane handles at once: one vector register.
inline constexpr std::uint32_t kTileBytes = 16;

class Block {
 public:
  ALLRANKS_DEVICE std::uint32_t index() const { return blockIdx.x; }
  ALLRANKS_DEVICE std::uint32_t count() const { return gridDim.x; }
  ALLRANKS_DEVICE std::uint32_t lane() const { return threadIdx.x; }
  ALLRANKS_DEVICE std::uint32_t lane_count() const { return blockDim.x; }
  ALLRANKS_DEVICE void sync() { __syncthreads(); }

  template <typename T>
  ALLRANKS_DEVICE void load(T* tile, Address from, std::uint32_t count) {
    if (count * sizeof(T) == kTileBytes && from % kTileBytes == 0) {
      const uint4 vector = *reinterpret_cast<const uint4*>(from);
      memcpy(tile, &vector, kTileBytes);
      return;
    }
    for (std::uint32_t i = 0; i < count; ++i) tile[i] = reinterpret_cast<const T*>(from)[i];
  }
  template <typename T>
  ALLRANKS_DEVICE void store(Address to, const T* tile, std::uint32_t count) {
    if (count * sizeof(T) == kTileBytes && to % kTileBytes == 0) {
      uint4 vector;
      memcpy(&vector, tile, kTileBytes);
      *reinterpret_cast<uint4*>(to) = vector;
      return;
    }
    for (std::uint32_t i = 0; i < count; ++i) reinterpret_cast<T*>(to)[i] = tile[i];
  }

  ALLRANKS_DEVICE std::uint64_t load_word(Address word) { return at(word).load(cuda::memory_order_relaxed); }
  ALLRANKS_DEVICE void signal(Address word, std::uint64_t value) { at(word).store(value, cuda::memory_order_release); }
  // The limit is kept by the GPU's global timer, which counts nanoseconds.
  ALLRANKS_DEVICE std::uint64_t spin(Address word, std::uint64_t expected, std::uint64_t timeout_us, const char*) {
    const std::uint64_t began_ns = ptx::global_timer_ns();
    for (;;) {
      const std::uint64_t seen = at(word).load(cuda::memory_order_acquire);
      if (reached(seen, expected)) return seen;
      if (timeout_us != kNoTimeoutUs && (ptx::global_timer_ns() - began_ns) / 1000 >= timeout_us) return seen;
    }
  }

  ALLRANKS_DEVICE void multimem_load_reduce(void* destination, Address from, MultimemType type,
                                            MultimemOperation operation, std::uint32_t, std::uint32_t bytes) {
    ptx::multimem_load_reduce(destination, from, type, operation, bytes);
  }
  ALLRANKS_DEVICE void multimem_store(Address to, const void* source, std::uint32_t bytes) {
    ptx::multimem_store(to, source, bytes);
  }

 private:
  ALLRANKS_DEVICE static cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system> at(Address word) {
    return cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>(*reinterpret_cast<std::uint64_t*>(word));
  }
};

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_PLATFORM_GPU_H_
