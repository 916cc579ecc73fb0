// cuda.h with its functions exported from this library. Include it first in a file that defines entry points: the
// header renames each function to its newest version, so that `cuMemAlloc` here defines `cuMemAlloc_v2`.
#ifndef ALLRANKS_SIMCUDA_ENTRY_CUDA_API_HPP_
#define ALLRANKS_SIMCUDA_ENTRY_CUDA_API_HPP_

#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include "../entry.hpp"

#endif  // ALLRANKS_SIMCUDA_ENTRY_CUDA_API_HPP_
