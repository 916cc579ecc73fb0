// Modules of host-compiled kernels, and their launches.
//
// A launch runs in its stream: one fiber a lane of each block (a single lane of a single block runs on the stream's
// own fiber). As many blocks are resident as the machine has room for; the others start when one ends, so a kernel
// that needs all its blocks and has too many stalls, as on hardware.
//
// Threads: with the turn held.
#ifndef ALLRANKS_SIMCUDA_KERNEL_HPP_
#define ALLRANKS_SIMCUDA_KERNEL_HPP_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "include/simcu.h"
#include "ledger.hpp"
#include "stream.hpp"

namespace allranks::sim {

struct Kernel {
  std::string name;
  simcuKernelEntry entry = nullptr;  // null: machine code, whose launches are counted and not executed
  std::vector<std::size_t> parameter_bytes;
};

struct Module {
  Birth birth;
  std::vector<std::uint64_t> functions = {};  // handles
  bool machine_code = false;                  // has a function of any name
};

// Modules and functions of one context.
class ModuleTable {
 public:
  explicit ModuleTable(Context& context);

  // Null handle: the image is none of host-compiled kernels.
  CUmodule load(const void* image);
  CUmodule load_machine_code();
  bool unload(CUmodule handle);
  CUfunction function(CUmodule handle, const char* name);
  bool known(CUmodule handle) const;
  std::shared_ptr<const Kernel> find(CUfunction handle) const;
  const std::map<std::uint64_t, Module>& all() const { return modules_; }

 private:
  Context& context_;
  std::uint64_t add_function(Kernel kernel);
  CUmodule add_module(Module module);

  std::map<std::uint64_t, Module> modules_;
  std::map<std::uint64_t, std::shared_ptr<const Kernel>> functions_;
  std::uint64_t& next_handle_;  // of the process
};

std::shared_ptr<const Kernel> find_kernel(Process& process, CUfunction handle);

struct LaunchShape {
  std::uint32_t block_count = 1;
  std::uint32_t lane_count = 1;
};

// Copies the parameters and appends the launch to the stream.
void launch_kernel(Context& context, Stream& stream, std::shared_ptr<const Kernel> kernel, const LaunchShape& shape,
                   void** parameters);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_KERNEL_HPP_
