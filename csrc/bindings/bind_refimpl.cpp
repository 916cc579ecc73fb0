#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "communicator/in_process_bootstrap.hpp"
#include "errors_to_python.hpp"
#include "sim_library.hpp"

namespace allranks::bindings {

namespace py = pybind11;

namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;

// Ranks that are threads of this process wait by the simulated driver's turnstile where there is one.
std::shared_ptr<Waiter> waiter_of_process() {
  try {
    const SimLibrary& library = sim_library();
    return std::make_shared<TurnstileWaiter>(library.Wait, library.Notify);
  } catch (const std::runtime_error&) {
    return std::make_shared<ConditionWaiter>();
  }
}

void bind_bootstrap(py::module_& module) {
  py::class_<Bootstrap, std::shared_ptr<Bootstrap>>(module, "Bootstrap")
      .def_property_readonly("rank", &Bootstrap::rank)
      .def_property_readonly("rank_count", &Bootstrap::rank_count)
      .def_property_readonly("rendezvous_count", &Bootstrap::rendezvous_count)
      .def("set_timeout_us", &Bootstrap::set_timeout_us, py::arg("timeout_us"))
      .def("all_gather",
           [](Bootstrap& self, const std::string& data, const std::string& object) {
             std::vector<Bytes> gathered;
             {
               const py::gil_scoped_release nogil;
               gathered = self.all_gather(data, object);
             }
             py::list list;
             for (const Bytes& bytes : gathered) list.append(py::bytes(bytes));
             return list;
           },
           py::arg("data"), py::arg("object"))
      .def("barrier", [](Bootstrap& self, const std::string& object) { self.barrier(object); }, py::arg("object"),
           NoGil())
      .def("send", &Bootstrap::send, py::arg("peer"), py::arg("tag"), py::arg("data"), NoGil())
      .def("receive",
           [](Bootstrap& self, int peer, int tag) {
             Bytes bytes;
             {
               const py::gil_scoped_release nogil;
               bytes = self.receive(peer, tag);
             }
             return py::bytes(bytes);
           },
           py::arg("peer"), py::arg("tag"))
      .def("leave", &Bootstrap::leave, NoGil());
  py::class_<InProcessRendezvous, std::shared_ptr<InProcessRendezvous>>(module, "InProcessRendezvous")
      .def(py::init([](int rank_count) { return std::make_shared<InProcessRendezvous>(rank_count, waiter_of_process()); }),
           py::arg("rank_count"))
      .def_property_readonly("rank_count", &InProcessRendezvous::rank_count)
      .def("bootstrap", &InProcessRendezvous::bootstrap, py::arg("rank"), NoGil());
}

}  // namespace

void bind_refimpl(py::module_& module) {
  translate_errors();
  bind_bootstrap(module);
}

}  // namespace allranks::bindings
