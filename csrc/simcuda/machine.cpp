#include "machine.hpp"

#include <cstring>

#include "address_space.hpp"

namespace allranks::sim {

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

bool power_of_two(std::uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

std::string field(const char* name, std::uint64_t value, const char* rule) {
  return std::string(name) + "=" + std::to_string(value) + ": " + rule;
}

}  // namespace

std::string objection_to(const simcuMachine& machine) {
  if (machine.struct_bytes != sizeof(simcuMachine)) {
    return field("struct_bytes", machine.struct_bytes, "not this library's simcuMachine");
  }
  const auto count = static_cast<std::uint64_t>(machine.device_count);
  if (machine.device_count < 1 || count > kMostDevices) return field("device_count", count, "from 1 to 128");
  if (!power_of_two(machine.allocation_granularity_bytes) || machine.allocation_granularity_bytes < 4096) {
    return field("allocation_granularity_bytes", machine.allocation_granularity_bytes, "a power of two from 4096");
  }
  if (!power_of_two(machine.multicast_granularity_minimum_bytes) ||
      machine.multicast_granularity_minimum_bytes < machine.allocation_granularity_bytes) {
    return field("multicast_granularity_minimum_bytes", machine.multicast_granularity_minimum_bytes,
                 "a power of two, not below the allocation granularity");
  }
  if (machine.multicast_granularity_recommended_bytes % machine.multicast_granularity_minimum_bytes != 0 ||
      machine.multicast_granularity_recommended_bytes == 0) {
    return field("multicast_granularity_recommended_bytes", machine.multicast_granularity_recommended_bytes,
                 "a multiple of the minimum");
  }
  if (machine.multicast_charge_rounding_bytes == 0) {
    return field("multicast_charge_rounding_bytes", 0, "at least 1");
  }
  if (machine.memory_bytes < machine.allocation_granularity_bytes || machine.memory_bytes > (std::uint64_t{1} << 44)) {
    return field("memory_bytes", machine.memory_bytes, "from one granule to 16 TiB");
  }
  if (machine.lanes < 1 || machine.lanes > 32) {
    return field("lanes", static_cast<std::uint64_t>(machine.lanes), "from 1 to 32");
  }
  if (machine.multiprocessor_count < 1 || machine.blocks_per_multiprocessor < 1) {
    return field("multiprocessor_count", static_cast<std::uint64_t>(machine.multiprocessor_count),
                 "multiprocessors and their blocks are at least 1");
  }
  if (machine.multicast_charge < SIMCU_CHARGE_AT_CREATE || machine.multicast_charge > SIMCU_CHARGE_AT_BIND) {
    return field("multicast_charge", static_cast<std::uint64_t>(machine.multicast_charge), "a simcuMulticastCharge");
  }
  if (machine.binding_on_free < SIMCU_BINDING_KEEPS_MEMORY || machine.binding_on_free > SIMCU_UNBIND_REPORTS_ERROR) {
    return field("binding_on_free", static_cast<std::uint64_t>(machine.binding_on_free), "a simcuBindingOnFree");
  }
  if (machine.fabric_handle_permitted != 0) {
    return field("fabric_handle_permitted", 1, "fabric handles are not simulated; only the refusal of them is");
  }
  if (std::memchr(machine.name, '\0', sizeof machine.name) == nullptr) return "name: not terminated";
  return {};
}

bool machine_named(const std::string& name, int devices, simcuMachine& machine) {
  machine = {};
  machine.struct_bytes = sizeof machine;
  std::strncpy(machine.name, name.c_str(), sizeof machine.name - 1);
  machine.device_count = devices;
  machine.compute_capability_major = 9;
  machine.multiprocessor_count = 132;
  machine.blocks_per_multiprocessor = 1;
  machine.lanes = 1;
  machine.multicast_supported = 1;
  machine.fabric_handle_supported = 1;
  machine.peer_access = 1;
  machine.allocation_granularity_bytes = 2 * kMiB;
  machine.multicast_granularity_minimum_bytes = 2 * kMiB;
  machine.multicast_granularity_recommended_bytes = 2 * kMiB;
  machine.multicast_charge_rounding_bytes = 2 * kMiB;
  machine.driver_version = 13000;
  if (name == "h100") {
    machine.memory_bytes = 81559 * kMiB;
    machine.multicast_capacity_bytes = 124 * kGiB;
    return true;
  }
  if (name == "h200") {
    machine.memory_bytes = 150109880320ull;  // measured: 143,155.9 MiB (143155.9375 fits)
    machine.multicast_capacity_bytes = 288 * kGiB;
    return true;
  }
  return false;
}

}  // namespace allranks::sim
