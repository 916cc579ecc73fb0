// What the compiler's start-up code registers: fat binaries, and under addresses of the host program their functions
// and variables.
//
// A fat binary is given to the driver when something of it is first needed in a context. Threads: any.
#ifndef ALLRANKS_SIMCUDART_REGISTRY_HPP_
#define ALLRANKS_SIMCUDART_REGISTRY_HPP_

#include <cuda.h>
#include <driver_types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace allranks::cudart {

struct FatBinary {
  const void* image = nullptr;
  bool has_managed = false;  // variables in managed memory, which is not simulated
  std::map<CUcontext, CUmodule> modules = {};
};

struct Kernel {
  FatBinary* binary = nullptr;
  std::string name;
  std::map<CUcontext, CUfunction> functions = {};
};

struct Variable {
  FatBinary* binary = nullptr;
  std::string name;
  std::size_t size = 0;
};

class Registry {
 public:
  FatBinary* add_binary(const void* image);
  void remove_binary(FatBinary* binary);
  void add_kernel(FatBinary* binary, const void* host, const char* name);
  void add_variable(FatBinary* binary, const void* host, const char* name, std::size_t size);

  // `symbol`: the address of the kernel's host function, or what kernel_of() gave; null: neither.
  Kernel* kernel_of(const void* symbol);
  // In the current context.
  cudaError_t function_of(const void* symbol, CUfunction& function);
  cudaError_t variable_of(const void* symbol, CUdeviceptr& address, std::size_t& size);
  // The context is gone, and the modules in it.
  void forget(CUcontext context);

 private:
  CUresult module_of(FatBinary& binary, CUcontext context, CUmodule& module);
  Kernel* find_kernel(const void* symbol);

  std::mutex mutex_;
  std::map<FatBinary*, std::unique_ptr<FatBinary>> binaries_;
  std::map<const void*, std::unique_ptr<Kernel>> kernels_;  // by host function
  std::map<const void*, Variable> variables_;               // by host variable
};

// One a process, and never destroyed: programs unregister when they end.
Registry& registry();

}  // namespace allranks::cudart

#endif  // ALLRANKS_SIMCUDART_REGISTRY_HPP_
