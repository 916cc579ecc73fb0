// The project's kernels, loaded into a context.
//
// Threads: those of the rank, with the context current.
#ifndef ALLRANKS_COMMUNICATOR_KERNELS_HPP_
#define ALLRANKS_COMMUNICATOR_KERNELS_HPP_

#include <array>
#include <cstddef>

#include "device/kernels.h"
#include "device/layout.h"
#include "owners.hpp"

namespace allranks {

#define ALLRANKS_KERNEL_ENUMERATOR(name, Arguments) name,
enum class Kernel : std::uint8_t { ALLRANKS_KERNELS(ALLRANKS_KERNEL_ENUMERATOR) };
#undef ALLRANKS_KERNEL_ENUMERATOR
#define ALLRANKS_KERNEL_ONE(name, Arguments) +1
inline constexpr std::size_t kKernelCount = 0 ALLRANKS_KERNELS(ALLRANKS_KERNEL_ONE);
#undef ALLRANKS_KERNEL_ONE

template <Kernel kernel>
struct KernelArguments;
#define ALLRANKS_KERNEL_ARGUMENTS(name, Arguments) \
  template <>                                      \
  struct KernelArguments<Kernel::name> {           \
    using Type = device::Arguments;                \
  };
ALLRANKS_KERNELS(ALLRANKS_KERNEL_ARGUMENTS)
#undef ALLRANKS_KERNEL_ARGUMENTS

class Kernels {
 public:
  Kernels() = default;
  // Throws DriverError, and UsageError where this build has no code for the driver's GPUs.
  explicit Kernels(Cleanup& cleanup);

  template <Kernel kernel>
  void launch(const typename KernelArguments<kernel>::Type& arguments, std::uint32_t block_count, CUstream stream) {
    launch(kernel, &arguments, block_count, stream);
  }
  // Looks the kernel up now, so that a later launch has one driver call less that can fail.
  void prepare(Kernel kernel) { function(kernel); }
  void reset() noexcept { module_.reset(); }

 private:
  CUfunction function(Kernel kernel);
  void launch(Kernel kernel, const void* arguments, std::uint32_t block_count, CUstream stream);

  Cleanup* cleanup_ = nullptr;
  Module module_;
  std::array<CUfunction, kKernelCount> functions_{};
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_KERNELS_HPP_
