// Turns the communicator's errors into the exceptions of allranks.errors.
//
// Threads: with the GIL held.
#ifndef ALLRANKS_BINDINGS_ERRORS_TO_PYTHON_HPP_
#define ALLRANKS_BINDINGS_ERRORS_TO_PYTHON_HPP_

namespace allranks::bindings {

// Registers the translation, once a process.
void translate_errors();

}  // namespace allranks::bindings

#endif  // ALLRANKS_BINDINGS_ERRORS_TO_PYTHON_HPP_
