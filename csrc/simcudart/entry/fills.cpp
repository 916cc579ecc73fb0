// Fills, a byte at a time as the runtime has them.
#include "../call.hpp"

using namespace allranks::cudart;

namespace {

unsigned char byte_of(int value) { return static_cast<unsigned char>(value); }

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaMemset(void* pointer, int value, size_t bytes) {
  return call(Needs::kContext, [&] { return ALLRANKS_DRIVER(cuMemsetD8)(address_of(pointer), byte_of(value), bytes); });
}

cudaError_t CUDARTAPI cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  return call(Needs::kContext,
              [&] { return ALLRANKS_DRIVER(cuMemsetD8Async)(address_of(pointer), byte_of(value), bytes, stream); });
}

cudaError_t CUDARTAPI cudaMemset2D(void* pointer, size_t pitch, int value, size_t width, size_t height) {
  return call(Needs::kContext,
              [&] { return ALLRANKS_DRIVER(cuMemsetD2D8)(address_of(pointer), pitch, byte_of(value), width, height); });
}

cudaError_t CUDARTAPI cudaMemset2DAsync(void* pointer, size_t pitch, int value, size_t width, size_t height,
                                        cudaStream_t stream) {
  return call(Needs::kContext, [&] {
    return ALLRANKS_DRIVER(cuMemsetD2D8Async)(address_of(pointer), pitch, byte_of(value), width, height, stream);
  });
}

}  // extern "C"
