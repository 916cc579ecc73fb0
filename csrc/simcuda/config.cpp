#include "config.hpp"

#include <climits>
#include <cstdlib>

#include "machine.hpp"

namespace allranks::sim {

DefaultMachine default_machine() {
  const char* const name = std::getenv("SIMCU_MACHINE");
  const char* const devices = std::getenv("SIMCU_DEVICES");
  DefaultMachine found;
  char* end = nullptr;
  const long count = devices == nullptr ? 8 : std::strtol(devices, &end, 10);
  if (devices != nullptr && (end == devices || *end != '\0' || count < 1 || count > INT_MAX)) {
    found.objection = "SIMCU_DEVICES=" + std::string(devices) + ": a number of GPUs, from 1";
  } else if (!machine_named(name == nullptr ? "h100" : name, static_cast<int>(count), found.machine)) {
    found.objection = "SIMCU_MACHINE=" + std::string(name == nullptr ? "h100" : name) + ": h100 or h200";
  } else {
    found.objection = objection_to(found.machine);
  }
  return found;
}

}  // namespace allranks::sim
