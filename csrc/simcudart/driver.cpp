#include "driver.hpp"

#include <dlfcn.h>

namespace allranks::cudart {

namespace {

void* driver_library() {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return library;
}

}  // namespace

bool has_driver() { return driver_library() != nullptr; }

void* driver_symbol(const char* name) { return driver_library() == nullptr ? nullptr : dlsym(driver_library(), name); }

CUresult tell_unsupported(const char* name) {
  // simcu.h: only a simulated driver has it.
  static auto* const tell = reinterpret_cast<int (*)(const char*)>(driver_symbol("simcuUnsupported"));
  return tell == nullptr ? CUDA_ERROR_NOT_SUPPORTED : static_cast<CUresult>(tell(name));
}

}  // namespace allranks::cudart
