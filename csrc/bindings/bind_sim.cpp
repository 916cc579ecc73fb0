#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <string>

#include "sim_meeting.hpp"
#include "sim_node.hpp"

namespace allranks::bindings {

namespace {

// A condition written in Python, asked by whichever thread has the turn. An exception ends the wait and is raised
// in the waiting thread.
struct PythonCondition {
  py::function ready;
  std::optional<py::function> waits_for;
  std::exception_ptr error;

  static int ask(void* state) {
    auto& self = *static_cast<PythonCondition*>(state);
    const py::gil_scoped_acquire gil;
    try {
      return self.ready().cast<bool>() ? 1 : 0;
    } catch (const std::exception&) {
      self.error = std::current_exception();
      return 1;
    }
  }

  static std::size_t missing(void* state, int* ranks, std::size_t capacity) {
    auto& self = *static_cast<PythonCondition*>(state);
    if (!self.waits_for) return 0;
    const py::gil_scoped_acquire gil;
    try {
      const auto list = (*self.waits_for)().cast<std::vector<int>>();
      for (std::size_t i = 0; i < list.size() && i < capacity; ++i) ranks[i] = list[i];
      return list.size();
    } catch (const std::exception&) {
      self.error = std::current_exception();
      return 0;
    }
  }
};

int wait(py::function ready, const std::string& call, const std::string& object, std::optional<py::function> waits_for,
         std::uint64_t key, std::optional<double> timeout_s) {
  PythonCondition condition{std::move(ready), std::move(waits_for), nullptr};
  const simcuWaitSpec spec{
      .struct_bytes = sizeof(simcuWaitSpec),
      .ready = &PythonCondition::ask,
      .waits_for = &PythonCondition::missing,
      .state = &condition,
      .key = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(key)),
      .call = call.c_str(),
      .object = object.c_str(),
      .timeout_us = timeout_s ? static_cast<std::uint64_t>(*timeout_s * 1e6) : SIMCU_NO_TIMEOUT,
  };
  int result = 0;
  {
    const py::gil_scoped_release nogil;
    result = sim_library().Wait(&spec);
  }
  if (condition.error) std::rethrow_exception(condition.error);
  return result;
}

simcuMachine machine_from(const py::dict& fields) {
  simcuMachine machine{};
  machine.struct_bytes = sizeof machine;
  const auto name = fields["name"].cast<std::string>();
  std::strncpy(machine.name, name.c_str(), sizeof machine.name - 1);
#define ALLRANKS_FIELD(field) machine.field = fields[#field].cast<decltype(machine.field)>();
  ALLRANKS_FIELD(device_count)
  ALLRANKS_FIELD(compute_capability_major)
  ALLRANKS_FIELD(compute_capability_minor)
  ALLRANKS_FIELD(multiprocessor_count)
  ALLRANKS_FIELD(blocks_per_multiprocessor)
  ALLRANKS_FIELD(lanes)
  ALLRANKS_FIELD(multicast_supported)
  ALLRANKS_FIELD(fabric_handle_supported)
  ALLRANKS_FIELD(fabric_handle_permitted)
  ALLRANKS_FIELD(peer_access)
  ALLRANKS_FIELD(memory_bytes)
  ALLRANKS_FIELD(allocation_granularity_bytes)
  ALLRANKS_FIELD(multicast_granularity_minimum_bytes)
  ALLRANKS_FIELD(multicast_granularity_recommended_bytes)
  ALLRANKS_FIELD(multicast_capacity_bytes)
  ALLRANKS_FIELD(multicast_charge)
  ALLRANKS_FIELD(multicast_charge_rounding_bytes)
  ALLRANKS_FIELD(binding_on_free)
  ALLRANKS_FIELD(driver_version)
#undef ALLRANKS_FIELD
  return machine;
}

void bind_node(py::module_& module) {
  py::class_<Node, std::shared_ptr<Node>>(module, "Node")
      .def(py::init([](const py::dict& machine) { return std::make_shared<Node>(machine_from(machine)); }))
      .def("create_process", &Node::create_process, py::arg("rank"), py::arg("rule"), py::arg("base_offset_bytes"))
      .def("run_begin", &Node::run_begin, py::arg("task_count"), py::arg("schedule"))
      .def("run_begin_asking", &Node::run_begin_asking, py::arg("task_count"), py::arg("choose"))
      .def("run_wait", &Node::run_wait, py::arg("quiet_timeout_s"))
      .def("run_report", &Node::run_report)
      .def("deviations", &Node::deviations)
      .def("stalled", [](const Node& node) { return sim_library().RunStalled(node.handle()) != 0; })
      .def("decisions", [](const Node& node) { return sim_library().RunDecisions(node.handle()); })
      .def("verdict_ns", [](const Node& node) { return sim_library().RunVerdictNanoseconds(node.handle()); })
      .def("ledger", &Node::ledger)
      .def("writes", &Node::writes)
      .def(
          "writes_record", [](const Node& node, bool on) { sim_library().WritesRecord(node.handle(), on ? 1 : 0); },
          py::arg("on"))
      .def("writes_clear", [](const Node& node) { sim_library().WritesClear(node.handle()); })
      .def("incidents", &Node::incidents)
      .def(
          "memory_used", [](const Node& node, int device) { return sim_library().MemoryUsed(node.handle(), device); },
          py::arg("device"))
      .def(
          "multicast_used",
          [](const Node& node, int device) { return sim_library().MulticastUsed(node.handle(), device); },
          py::arg("device"))
      .def("used",
           [](const Node& node) {
             simcuUsage usage{sizeof(simcuUsage), 0, 0, 0};
             sim_library().Used(node.handle(), &usage);
             return py::make_tuple(usage.memory_bytes, usage.multicast_bytes, usage.handles);
           })
      .def("check_invariants",
           [](const Node& node) -> std::optional<std::string> {
             const char* const text = sim_library().CheckInvariants(node.handle());
             return text == nullptr ? std::nullopt : std::optional<std::string>(text);
           })
      .def("close", &Node::close);
}

void bind_process(py::module_& module) {
  py::class_<Process, std::shared_ptr<Process>>(module, "Process")
      .def_property_readonly("rank", &Process::rank)
      .def("enter", &Process::enter, py::arg("order"))
      .def("bind", [](const Process& process) { sim_library().Bind(process.handle()); })
      .def(
          "place", [](const Process& process, int rule) { sim_library().ProcessPlace(process.handle(), rule); },
          py::arg("rule"))
      .def(
          "wish",
          [](const Process& process, std::uint64_t address) { sim_library().ProcessWish(process.handle(), address); },
          py::arg("address"))
      .def("calls", &Process::calls, py::arg("first"))
      .def("resolve", &Process::resolve, py::arg("address"), py::arg("size"))
      .def("peek", &Process::peek, py::arg("address"), py::arg("size"))
      .def("poke", &Process::poke, py::arg("address"), py::arg("data"))
      .def("view", &Process::view, py::arg("address"), py::arg("size"))
      .def("fault", &Process::fault, py::arg("call"), py::arg("k"), py::arg("code"))
      .def("faults_clear", [](const Process& process) { sim_library().FaultsClear(process.handle()); })
      .def("close", &Process::close);
}

// A thread that blocks in the library gives Python's lock up, wherever it came from: a call, or a destructor.
void* give_up_gil() { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; }
void take_gil(void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }

void load(const std::string& path) {
  load_sim_library(path);
  sim_library().BlockingHooks(&give_up_gil, &take_gil);
}

}  // namespace

void bind_sim(py::module_& module) {
  module.def("load", &load, py::arg("path"));
  module.def("version", [] { return sim_library().Version(); });
  module.def("unbind", [] { sim_library().Bind(nullptr); });
  module.def("leave", [] { sim_library().TaskLeave(); }, py::call_guard<py::gil_scoped_release>());
  module.def("yield_turn", [] { sim_library().Yield(); }, py::call_guard<py::gil_scoped_release>());
  module.def("now_us", [] { return sim_library().Now(); });
  module.def("wait", &wait, py::arg("ready"), py::arg("call"), py::arg("object"), py::arg("waits_for"), py::arg("key"),
             py::arg("timeout_s"));
  module.def(
      "notify",
      [](std::uint64_t key) { sim_library().Notify(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(key))); },
      py::arg("key"));
  module.def(
      "label",
      [](std::uint32_t step, const std::string& operation, int owner) {
        sim_library().Label(step, operation.c_str(), owner);
      },
      py::arg("step"), py::arg("operation"), py::arg("owner"));
  py::class_<Missing>(module, "Missing")
      .def_readonly("result", &Missing::result)
      .def_readonly("ranks", &Missing::ranks)
      .def_readonly("round", &Missing::round);
  py::class_<Meeting>(module, "Meeting")
      .def(py::init<int>(), py::arg("rank_count"))
      .def("end", &Meeting::end)
      .def("exchange", &Meeting::exchange, py::arg("rank"), py::arg("value"), py::arg("what"), py::arg("timeout_s"),
           py::arg("members"))
      .def("look", &Meeting::look, py::arg("rank"), py::arg("action"), py::arg("what"));
  module.def(
      "call_name",
      [](std::uint16_t call) -> std::optional<std::string> {
        const char* const name = sim_library().CallName(call);
        return name == nullptr ? std::nullopt : std::optional<std::string>(name);
      },
      py::arg("call"));
  bind_process(module);
  bind_node(module);
}

}  // namespace allranks::bindings
