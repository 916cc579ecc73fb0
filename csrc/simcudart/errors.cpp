#include "errors.hpp"

#include "driver.hpp"
#include "generated.hpp"
#include "thread_state.hpp"

namespace allranks::cudart {

const ErrorRow* row_of(int code) {
  for (const ErrorRow* row = kErrorRows; row->code >= 0; ++row) {
    if (row->code == code) return row;
  }
  return nullptr;
}

cudaError_t as_error(CUresult result) {
  if (result == CUDA_SUCCESS) return cudaSuccess;
  const int code = static_cast<int>(result);
  return row_of(code) == nullptr ? cudaErrorUnknown : static_cast<cudaError_t>(code);
}

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak: return true;
    default: return false;
  }
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) this_thread().last_error = error;
  return error;
}

int not_supported(const char* name) { return static_cast<int>(remember(as_error(tell_unsupported(name)))); }

}  // namespace allranks::cudart
