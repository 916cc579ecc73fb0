// The kernels compiled for GPUs. Their names in the module are those in kernels.h.
#include "all_gather.h"
#include "all_reduce.h"
#include "channels.h"
#include "kernels.h"

#define ALLRANKS_GPU_ENTRY(name, Arguments)                                                              \
  extern "C" __global__ void name(const __grid_constant__ allranks::device::Arguments arguments) {       \
    allranks::device::Block block;                                                                       \
    allranks::device::name(block, arguments);                                                            \
  }
ALLRANKS_KERNELS(ALLRANKS_GPU_ENTRY)
#undef ALLRANKS_GPU_ENTRY
