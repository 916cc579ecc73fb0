// The environment as far as the communicator heeds it, and the hardware guard that rests on it.
//
// On real GPUs no multicast entry point is even resolved unless the user allows it and nothing forbids it: creating a
// multicast object can put GPUs that others share out of service. The decision is a pure function, so that tests need
// neither a driver nor a changed environment. This is the only part that reads the environment.
//
// Threads: any.
#ifndef ALLRANKS_COMMUNICATOR_CONFIG_HPP_
#define ALLRANKS_COMMUNICATOR_CONFIG_HPP_

#include <map>
#include <string>

namespace allranks {

using Environment = std::map<std::string, std::string>;

// The process's own values of the variables that the guard looks at.
Environment read_environment();

struct MulticastDecision {
  bool allowed = false;
  std::string reason;  // which variable decided, for error texts
};

// `simulated`: the library exports simcuVersion. Allowed there; on any other library only with
// ALLRANKS_ALLOW_HARDWARE_MULTICAST=1 and with none of NCCL_NVLS_ENABLE=0, TORCH_SYMM_MEM_DISABLE_MULTICAST=1,
// NVSHMEM_DISABLE_NVLS=1, MSCCLPP_FORCE_DISABLE_NVLS=1 in force. A value that is not understood forbids.
MulticastDecision decide_multicast(bool simulated, const Environment& environment);

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_CONFIG_HPP_
