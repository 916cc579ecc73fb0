// Every other function of nvml.h: not supported, which its callers have to expect of any device.
#include "abi.hpp"

// Called with the arguments of the real function, which it leaves alone.
#define ALLRANKS_NVML_NAME(name) \
  ALLRANKS_NVML name() { return NVML_ERROR_NOT_SUPPORTED; }
#include "rest.def"
#undef ALLRANKS_NVML_NAME
