#include "kernels.hpp"

#include "device/module_image.hpp"
#include "errors.hpp"

namespace allranks {

namespace {

constexpr unsigned kThreadsPerBlock = 256;

const char* name_of(Kernel kernel) {
#define ALLRANKS_KERNEL_NAME(name, Arguments) #name,
  static constexpr std::array<const char*, kKernelCount> kNames = {ALLRANKS_KERNELS(ALLRANKS_KERNEL_NAME)};
#undef ALLRANKS_KERNEL_NAME
  return kNames[static_cast<std::size_t>(kernel)];
}

}  // namespace

Kernels::Kernels(Cleanup& cleanup) : cleanup_(&cleanup) {
  const Driver& driver = cleanup.driver();
  if (!driver.simulated()) {
    throw UsageError("driver=" + driver.path() + ": this build has device code for the simulated driver only");
  }
  CUmodule module = nullptr;
  driver.cuModuleLoadData(&module, device::host_module_image());
  module_ = Module(cleanup, module);
}

CUfunction Kernels::function(Kernel kernel) {
  CUfunction& function = functions_[static_cast<std::size_t>(kernel)];
  if (function == nullptr) cleanup_->driver().cuModuleGetFunction(&function, module_.get(), name_of(kernel));
  return function;
}

void Kernels::launch(Kernel kernel, const void* arguments, std::uint32_t block_count, CUstream stream) {
  void* parameters[] = {const_cast<void*>(arguments)};
  cleanup_->driver().cuLaunchKernel(function(kernel), block_count, 1, 1, kThreadsPerBlock, 1, 1, 0, stream, parameters,
                                    nullptr);
}

}  // namespace allranks
