// The broker's C ABI (simcu_broker.h).
#include "include/simcu_broker.h"

#include <new>
#include <string>
#include <system_error>

#include "broker/broker.hpp"
#include "fault_plan.hpp"
#include "machine.hpp"
#include "node.hpp"

using allranks::sim::broker::Broker;

namespace {

Broker& broker_of(simcuBroker handle) { return *reinterpret_cast<Broker*>(handle); }

std::string objection_to_options(const simcuBrokerOptions& options) {
  if (options.struct_bytes != sizeof(simcuBrokerOptions)) return "struct_bytes: not this library's simcuBrokerOptions";
  if (options.host_memory < SIMCU_BROKER_MEMORY_BY_KERNEL || options.host_memory > SIMCU_BROKER_MEMORY_BY_SOCKET) {
    return "host_memory=" + std::to_string(options.host_memory) + ": a simcuBrokerMemory";
  }
  return options.faults == nullptr ? std::string() : allranks::sim::fault_plan(options.faults).objection;
}

}  // namespace

extern "C" {

simcuBroker simcuBrokerStart(const simcuMachine* machine, const simcuBrokerOptions* options) {
  const simcuBrokerOptions wanted =
      options != nullptr ? *options : simcuBrokerOptions{.struct_bytes = sizeof(simcuBrokerOptions)};
  std::string objection = machine == nullptr ? "machine=null" : allranks::sim::objection_to(*machine);
  if (objection.empty()) objection = objection_to_options(wanted);
  if (objection.empty()) {
    try {
      return reinterpret_cast<simcuBroker>(new Broker(*machine, wanted));
    } catch (const std::bad_alloc&) {
      objection = "memory_bytes=" + std::to_string(machine->memory_bytes) + ": no address space for that many devices";
    } catch (const std::system_error& error) {
      objection = error.what();
    }
  }
  allranks::sim::set_last_error(std::move(objection));
  return nullptr;
}

const char* simcuBrokerAddress(simcuBroker broker) { return broker_of(broker).address().c_str(); }

uint64_t simcuBrokerProgress(simcuBroker broker) { return broker_of(broker).progress(); }

int simcuBrokerAtRest(simcuBroker broker) { return broker_of(broker).at_rest() ? 1 : 0; }

const char* simcuBrokerReport(simcuBroker broker) {
  thread_local std::string text;
  text = broker_of(broker).report();
  return text.c_str();
}

void simcuBrokerStop(simcuBroker broker) { broker_of(broker).stop(); }

void simcuBrokerDestroy(simcuBroker broker) { delete &broker_of(broker); }

}  // extern "C"
