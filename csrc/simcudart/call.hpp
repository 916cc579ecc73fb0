// What every function of the runtime has in common: see to what it needs, do it, remember its error.
//
// Include it first in a file that defines such functions: they are exported as the header declares them.
#ifndef ALLRANKS_SIMCUDART_CALL_HPP_
#define ALLRANKS_SIMCUDART_CALL_HPP_

#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <new>

#include "contexts.hpp"
#include "driver.hpp"
#include "errors.hpp"

namespace allranks::cudart {

enum class Needs {
  kNothing,
  kDriver,  // cuInit
  kContext  // a current context, which it may be the first to make
};

// body() answers a CUresult or a cudaError_t.
template <typename Body>
cudaError_t call(Needs needs, const Body& body) {
  cudaError_t error = needs == Needs::kNothing ? cudaSuccess : needs == Needs::kDriver ? initialise() : need_context();
  if (error == cudaSuccess) {
    try {
      error = as_error(body());
    } catch (const std::bad_alloc&) {
      error = cudaErrorMemoryAllocation;
    }
  }
  return remember(error);
}

// Runs body() for a pointer that it sets. Known of the runtime: no bytes are no memory, and no error.
template <typename Body>
cudaError_t allocate(void** pointer, size_t bytes, const Body& body) {
  return call(Needs::kContext, [&] {
    if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pointer = nullptr;
    return bytes == 0 ? CUDA_SUCCESS : body();
  });
}

inline CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
inline CUdeviceptr* address_in(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

}  // namespace allranks::cudart

#endif  // ALLRANKS_SIMCUDART_CALL_HPP_
