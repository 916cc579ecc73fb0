// Attributes of a simulated GPU (cuDeviceGetAttribute).
#ifndef ALLRANKS_SIMCUDA_DEVICE_ATTRIBUTES_HPP_
#define ALLRANKS_SIMCUDA_DEVICE_ATTRIBUTES_HPP_

#include <cuda.h>

#include <optional>

#include "include/simcu.h"

namespace allranks::sim {

// Nothing for an attribute that driver 580 does not know.
std::optional<int> attribute_of(const simcuMachine& machine, int device, CUdevice_attribute attribute);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_DEVICE_ATTRIBUTES_HPP_
