// The extension module allranks._native: the simulated driver's face, the driver table, the reference communicator.
#include <pybind11/pybind11.h>

namespace allranks::bindings {
void bind_sim(pybind11::module_& module);
void bind_driver(pybind11::module_& module);
void bind_refimpl(pybind11::module_& module);
}  // namespace allranks::bindings

PYBIND11_MODULE(_native, module) {
  module.doc() = "Native parts of allranks.";
  pybind11::module_ sim = module.def_submodule("sim", "The simulated driver's extension interface.");
  allranks::bindings::bind_sim(sim);
  pybind11::module_ driver = module.def_submodule("driver", "A CUDA driver, loaded at run time.");
  allranks::bindings::bind_driver(driver);
  pybind11::module_ refimpl = module.def_submodule("refimpl", "The reference communicator.");
  allranks::bindings::bind_refimpl(refimpl);
}
