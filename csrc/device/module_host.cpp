// The kernels compiled for the host, as a module image of the simulated driver.
#include "module_image.hpp"

// Vectorising every type and operation takes ten times as long to compile, for loops that are never the bottleneck.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-vectorize")
#endif

#include <array>

#include "all_gather.h"
#include "all_reduce.h"
#include "channels.h"
#include "kernels.h"

namespace allranks::device {

namespace {

#define ALLRANKS_HOST_ENTRY(name, Arguments)                          \
  void entry_##name(simcuBlock* raw, const void* const* parameters) { \
    Block block(raw);                                                 \
    name(block, *static_cast<const Arguments*>(parameters[0]));       \
  }                                                                   \
  constexpr std::array<std::size_t, 1> kBytes_##name = {sizeof(Arguments)};
ALLRANKS_KERNELS(ALLRANKS_HOST_ENTRY)
#undef ALLRANKS_HOST_ENTRY

#define ALLRANKS_HOST_KERNEL(name, Arguments) simcuKernel{#name, &entry_##name, kBytes_##name.data(), 1},
const simcuKernel kKernels[] = {ALLRANKS_KERNELS(ALLRANKS_HOST_KERNEL)};
#undef ALLRANKS_HOST_KERNEL

const simcuModuleImage kImage = {
    .magic = SIMCU_MODULE_MAGIC, .version = 1, .kernel_count = std::size(kKernels), .kernels = kKernels};

}  // namespace

const void* host_module_image() { return &kImage; }

}  // namespace allranks::device
