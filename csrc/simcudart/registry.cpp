#include "registry.hpp"

#include <utility>

#include "contexts.hpp"
#include "driver.hpp"
#include "errors.hpp"

namespace allranks::cudart {

FatBinary* Registry::add_binary(const void* image) {
  auto binary = std::make_unique<FatBinary>(FatBinary{.image = image});
  FatBinary* const key = binary.get();
  const std::lock_guard lock(mutex_);
  binaries_.emplace(key, std::move(binary));
  return key;
}

void Registry::remove_binary(FatBinary* binary) {
  const std::lock_guard lock(mutex_);
  if (!binaries_.contains(binary)) return;
  for (const auto& [context, module] : binary->modules) ALLRANKS_DRIVER(cuModuleUnload)(module);
  std::erase_if(kernels_, [&](const auto& entry) { return entry.second->binary == binary; });
  std::erase_if(variables_, [&](const auto& entry) { return entry.second.binary == binary; });
  binaries_.erase(binary);
}

void Registry::add_kernel(FatBinary* binary, const void* host, const char* name) {
  const std::lock_guard lock(mutex_);
  kernels_[host] = std::make_unique<Kernel>(Kernel{.binary = binary, .name = name});
}

void Registry::add_variable(FatBinary* binary, const void* host, const char* name, std::size_t size) {
  const std::lock_guard lock(mutex_);
  variables_[host] = {.binary = binary, .name = name, .size = size};
}

Kernel* Registry::kernel_of(const void* symbol) {
  const std::lock_guard lock(mutex_);
  return find_kernel(symbol);
}

cudaError_t Registry::function_of(const void* symbol, CUfunction& function) {
  const CUcontext context = current_context();
  const std::lock_guard lock(mutex_);
  Kernel* const kernel = find_kernel(symbol);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  const auto known = kernel->functions.find(context);
  if (known != kernel->functions.end()) {
    function = known->second;
    return cudaSuccess;
  }
  CUmodule module = nullptr;
  CUresult result = module_of(*kernel->binary, context, module);
  if (result == CUDA_SUCCESS) result = ALLRANKS_DRIVER(cuModuleGetFunction)(&function, module, kernel->name.c_str());
  if (result == CUDA_SUCCESS) kernel->functions[context] = function;
  return result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidDeviceFunction : as_error(result);
}

cudaError_t Registry::variable_of(const void* symbol, CUdeviceptr& address, std::size_t& size) {
  const CUcontext context = current_context();
  const std::lock_guard lock(mutex_);
  const auto found = variables_.find(symbol);
  if (found == variables_.end()) return cudaErrorInvalidSymbol;
  CUmodule module = nullptr;
  CUresult result = module_of(*found->second.binary, context, module);
  if (result == CUDA_SUCCESS) {
    result = ALLRANKS_DRIVER(cuModuleGetGlobal)(&address, &size, module, found->second.name.c_str());
  }
  return result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : as_error(result);
}

void Registry::forget(CUcontext context) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, binary] : binaries_) binary->modules.erase(context);
  for (auto& [host, kernel] : kernels_) kernel->functions.erase(context);
}

CUresult Registry::module_of(FatBinary& binary, CUcontext context, CUmodule& module) {
  const auto known = binary.modules.find(context);
  if (known != binary.modules.end()) {
    module = known->second;
    return CUDA_SUCCESS;
  }
  if (binary.has_managed) tell_unsupported("__managed__");  // the program's pointers to them stay null
  const CUresult result = ALLRANKS_DRIVER(cuModuleLoadData)(&module, binary.image);
  if (result == CUDA_SUCCESS) binary.modules[context] = module;
  return result;
}

Kernel* Registry::find_kernel(const void* symbol) {
  const auto found = kernels_.find(symbol);
  if (found != kernels_.end()) return found->second.get();
  for (const auto& [host, kernel] : kernels_) {
    if (kernel.get() == symbol) return kernel.get();
  }
  return nullptr;
}

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

}  // namespace allranks::cudart
