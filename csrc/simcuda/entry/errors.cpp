// Names and texts of error codes.
#include "cuda_api.hpp"

#include "../generated.hpp"

using namespace allranks::sim;

namespace {

// Like the driver, an unknown code is INVALID_VALUE and a null text.
CUresult describe(CUresult code, const char** text, const char* ErrorRow::*column) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const ErrorRow* row = kErrorRows; row->code >= 0; ++row) {
    if (row->code == static_cast<int>(code)) {
      *text = row->*column;
      return CUDA_SUCCESS;
    }
  }
  *text = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGetErrorName(CUresult code, const char** text) { return describe(code, text, &ErrorRow::name); }

CUresult CUDAAPI cuGetErrorString(CUresult code, const char** text) { return describe(code, text, &ErrorRow::text); }

}  // extern "C"
