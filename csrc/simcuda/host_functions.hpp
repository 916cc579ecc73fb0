// Functions of the host program that a stream calls: this process's own, or a client's.
#ifndef ALLRANKS_SIMCUDA_HOST_FUNCTIONS_HPP_
#define ALLRANKS_SIMCUDA_HOST_FUNCTIONS_HPP_

#include <cuda.h>

namespace allranks::sim {

// A call of one; pointers are those of the process that it belongs to.
struct HostFunction {
  CUhostFn function = nullptr;  // of cuLaunchHostFunc, or null
  CUstreamCallback callback = nullptr;
  void* data = nullptr;
  CUstream stream = nullptr;  // of a callback
  CUresult status = CUDA_SUCCESS;

  void operator()() const { callback != nullptr ? callback(stream, status, data) : function(data); }
};

class HostFunctions {
 public:
  virtual ~HostFunctions() = default;
  // With the turn, by the work of a stream. Returns when the function has ended, or the process is ending.
  virtual void call(const HostFunction& function) = 0;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_HOST_FUNCTIONS_HPP_
