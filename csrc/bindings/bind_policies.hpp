// The communicator's policies, which Python may replace by subclasses.
#ifndef ALLRANKS_BINDINGS_BIND_POLICIES_HPP_
#define ALLRANKS_BINDINGS_BIND_POLICIES_HPP_

#include <pybind11/pybind11.h>

namespace allranks::bindings {

void bind_policies(pybind11::module_& module);

}  // namespace allranks::bindings

#endif  // ALLRANKS_BINDINGS_BIND_POLICIES_HPP_
