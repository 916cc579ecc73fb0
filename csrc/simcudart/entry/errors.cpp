// What a thread remembers, and names and texts of error codes.
#include "../call.hpp"
#include "../thread_state.hpp"

using namespace allranks::cudart;

namespace {

constexpr const char* kUnknown = "unrecognized error code";  // measured

// Null for a code that was not measured.
const char* measured_text(int code) {
  switch (code) {
#define ALLRANKS_ERROR_TEXT(number, text) \
  case number: return text;
#include "../error_texts.def"
#undef ALLRANKS_ERROR_TEXT
    default: return nullptr;
  }
}

// Measured: where the driver cannot be initialised, that is the last error, however often it is asked for.
cudaError_t last_error() {
  const cudaError_t error = initialise();
  return error != cudaSuccess ? error : this_thread().last_error;
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaGetLastError(void) {
  const cudaError_t error = last_error();
  if (!is_sticky(error)) this_thread().last_error = cudaSuccess;
  return error;
}

cudaError_t CUDARTAPI cudaPeekAtLastError(void) { return last_error(); }

const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  const ErrorRow* const row = row_of(static_cast<int>(error));
  return row == nullptr ? kUnknown : row->name;
}

const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  const ErrorRow* const row = row_of(static_cast<int>(error));
  const char* const measured = measured_text(static_cast<int>(error));
  return row == nullptr ? kUnknown : measured != nullptr ? measured : row->text;
}

}  // extern "C"
