// cuGetProcAddress: functions by name and version.
#include "cuda_api.hpp"

#include <dlfcn.h>

#include <cstring>
#include <string>

#include "../generated.hpp"

using namespace allranks::sim;

namespace {

// This library itself, whatever else the process has loaded.
void* own_library() {
  static void* const library = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<const void*>(&kErrorRows), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return library;
}

void* own_symbol(const std::string& name) {
  return own_library() == nullptr ? nullptr : dlsym(own_library(), name.c_str());
}

// The symbol that the name means for that version of CUDA; null with `known` set when it came later.
const char* symbol_for(const char* name, int version, bool& known) {
  const SymbolRow* best = nullptr;
  known = false;
  for (const SymbolRow* row = kSymbolRows; row->plain != nullptr; ++row) {
    if (std::strcmp(row->plain, name) != 0) continue;
    known = true;
    if (row->version <= version && (best == nullptr || row->version > best->version)) best = row;
  }
  return best == nullptr ? nullptr : best->symbol;
}

}  // namespace

extern "C" {

// Measured: with `status` given a name that is not found is SUCCESS and a null function; a version from the future is
// INVALID_VALUE. [cuda.h] Without it, NOT_FOUND.
CUresult CUDAAPI cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  constexpr cuuint64_t kKnownFlags = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (name == nullptr || function == nullptr || (flags & ~kKnownFlags) != 0 || version > CUDA_VERSION) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *function = nullptr;
  bool known = false;
  const char* const symbol = symbol_for(name, version, known);
  if (symbol != nullptr) {
    // Measured: cuGetProcAddress itself has no variant of its own.
    const bool per_thread =
        (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 && std::strcmp(name, "cuGetProcAddress") != 0;
    for (const char* suffix : {"_ptsz", "_ptds", ""}) {
      if (*suffix != '\0' && !per_thread) continue;
      *function = own_symbol(std::string(symbol) + suffix);
      if (*function != nullptr) break;
    }
  }
  if (status != nullptr) {
    *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : known              ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                   : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *function != nullptr || status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
