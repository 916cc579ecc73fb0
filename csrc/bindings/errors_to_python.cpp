#include "errors_to_python.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <exception>

#include "communicator/errors.hpp"

namespace allranks::bindings {

namespace py = pybind11;

namespace {

void raise(const char* type, const Error& error, const py::dict& fields) {
  const py::object made = py::module_::import("allranks.errors").attr(type)(error.what(), **fields);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
}

py::dict common(const Error& error) {
  py::dict fields;
  fields["rank"] = error.rank() == kNoRank ? py::object(py::none()) : py::object(py::int_(error.rank()));
  return fields;
}

void raise_peers(const char* type, const PeerLost& error) {
  py::dict fields = common(error);
  fields["ranks"] = py::tuple(py::cast(error.ranks()));
  raise(type, error, fields);
}

void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const DriverError& error) {
    py::dict fields = common(error);
    fields["call"] = error.call();
    fields["code"] = error.code();
    fields["name"] = error.name();
    raise("DriverError", error, fields);
  } catch (const Timeout& error) {
    raise_peers("Timeout", error);
  } catch (const Stalled& error) {
    raise_peers("Stalled", error);
  } catch (const PeerLost& error) {
    raise_peers("PeerLost", error);
  } catch (const UsageError& error) {
    raise("UsageError", error, common(error));
  } catch (const Error& error) {
    raise("WorldError", error, common(error));
  }
}

}  // namespace

void translate_errors() {
  static const bool once = [] {
    py::register_exception_translator(&translate);
    return true;
  }();
  (void)once;
}

}  // namespace allranks::bindings
