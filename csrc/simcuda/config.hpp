// What the simulated driver takes from the environment; nothing else in it reads variables.
#ifndef ALLRANKS_SIMCUDA_CONFIG_HPP_
#define ALLRANKS_SIMCUDA_CONFIG_HPP_

#include <string>

#include "include/simcu.h"

namespace allranks::sim {

struct DefaultMachine {
  simcuMachine machine{};
  std::string objection;  // empty: `machine` is valid
};

// The machine of a program that brings none: SIMCU_MACHINE (h100) with SIMCU_DEVICES (8) GPUs.
DefaultMachine default_machine();

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_CONFIG_HPP_
