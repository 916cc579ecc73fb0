// Errors of the runtime: what the driver's codes mean in it, and what a thread remembers.
//
// A thread remembers the last error that one of its calls answered, until it is asked for it. Errors that mean that the
// context is broken are remembered beyond that, and every later call answers them, until the device is reset.
#ifndef ALLRANKS_SIMCUDART_ERRORS_HPP_
#define ALLRANKS_SIMCUDART_ERRORS_HPP_

#include <cuda.h>
#include <driver_types.h>

namespace allranks::cudart {

// One a code of driver_types.h, generated.
struct ErrorRow {
  int code;  // -1 ends the table
  const char* name;
  const char* text;  // the first sentence of its comment
};
extern const ErrorRow kErrorRows[];

// Null: there is no such code.
const ErrorRow* row_of(int code);

// Both enumerations have the same numbers; what the runtime has no number for is cudaErrorUnknown.
cudaError_t as_error(CUresult result);
inline cudaError_t as_error(cudaError_t error) { return error; }

bool is_sticky(cudaError_t error);

// Remembers it for the calling thread, and gives it back.
cudaError_t remember(cudaError_t error);

}  // namespace allranks::cudart

#endif  // ALLRANKS_SIMCUDART_ERRORS_HPP_
