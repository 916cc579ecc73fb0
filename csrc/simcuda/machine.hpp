// Descriptions of simulated machines: which are valid, and the one that a program gets without asking.
#ifndef ALLRANKS_SIMCUDA_MACHINE_HPP_
#define ALLRANKS_SIMCUDA_MACHINE_HPP_

#include <string>

#include "include/simcu.h"

namespace allranks::sim {

// Empty for a machine that can be simulated, else which field breaks which rule.
std::string objection_to(const simcuMachine& machine);

// The machine of a program that brings none: `name` as in allranks.sim ("h100", "h200"), with `devices` GPUs.
// False for an unknown name.
bool machine_named(const std::string& name, int devices, simcuMachine& machine);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_MACHINE_HPP_
