// What make_stubs.py takes from cuda.h: stubs, error codes, symbol versions.
#ifndef ALLRANKS_SIMCUDA_GENERATED_HPP_
#define ALLRANKS_SIMCUDA_GENERATED_HPP_

namespace allranks::sim {

struct ErrorRow {
  int code;  // -1 ends the table
  const char* name;
  const char* text;
};
extern const ErrorRow kErrorRows[];

// `symbol` is what `plain` means from that version of CUDA on.
struct SymbolRow {
  const char* plain;  // null ends the table
  int version;        // as 1000 * major + 10 * minor
  const char* symbol;
};
extern const SymbolRow kSymbolRows[];

// A call of a function that is not simulated, with nothing of its arguments known.
int not_supported_call(const char* name);
// For a body of a call that meets a feature which is not simulated: says so, once on stderr and once a node as an
// incident. CUDA_ERROR_NOT_SUPPORTED.
int not_supported(const char* name);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_GENERATED_HPP_
