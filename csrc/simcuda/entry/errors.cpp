// Names and texts of error codes.
#include "cuda_api.hpp"

#include "../generated.hpp"

using namespace allranks::sim;

namespace {

const ErrorRow* row_of(CUresult code) {
  for (const ErrorRow* row = kErrorRows; row->code >= 0; ++row) {
    if (row->code == static_cast<int>(code)) return row;
  }
  return nullptr;
}

// Null for a code that driver 580 does not know.
const char* measured_text(CUresult code) {
  switch (code) {
#define ALLRANKS_ERROR_TEXT(known, text) \
  case known: return text;
#include "../error_texts.def"
#undef ALLRANKS_ERROR_TEXT
    default: return nullptr;
  }
}

// Measured: an unknown code is INVALID_VALUE and a null text.
CUresult answer(const char* found, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = found;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGetErrorName(CUresult code, const char** text) {
  const ErrorRow* const row = row_of(code);
  return answer(row == nullptr ? nullptr : row->name, text);
}

CUresult CUDAAPI cuGetErrorString(CUresult code, const char** text) {
  const ErrorRow* const row = row_of(code);
  const char* const measured = measured_text(code);
  return answer(measured != nullptr || row == nullptr ? measured : row->text, text);
}

}  // extern "C"
