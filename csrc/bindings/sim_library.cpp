#include "sim_library.hpp"

#include <dlfcn.h>

#include <stdexcept>

namespace allranks::bindings {

namespace {

struct Loaded {
  std::string path;
  SimLibrary table;
};

// The one library of the process: the simulated driver keeps per-thread state, so a second copy would be a second
// world.
Loaded& loaded() {
  static Loaded instance;
  return instance;
}

template <typename Function>
Function symbol(void* library, const char* name) {
  void* const address = dlsym(library, name);
  if (address == nullptr) throw std::runtime_error(std::string("the simulated driver lacks ") + name);
  return reinterpret_cast<Function>(address);
}

}  // namespace

void load_sim_library(const std::string& path) {
  Loaded& here = loaded();
  if (!here.path.empty()) {
    if (here.path != path) {
      throw std::runtime_error("the simulated driver is loaded from " + here.path + " already, not from " + path);
    }
    return;
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
#define ALLRANKS_SIMCU_RESOLVE(name) here.table.name = symbol<decltype(here.table.name)>(library, "simcu" #name);
  ALLRANKS_SIMCU_FUNCTIONS(ALLRANKS_SIMCU_RESOLVE)
#undef ALLRANKS_SIMCU_RESOLVE
  here.path = path;
}

const SimLibrary& sim_library() {
  if (loaded().path.empty()) throw std::runtime_error("the simulated driver is not loaded: import allranks.sim first");
  return loaded().table;
}

}  // namespace allranks::bindings
