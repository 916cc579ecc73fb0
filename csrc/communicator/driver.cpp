#include "driver.hpp"

#include <dlfcn.h>

#include <cctype>
#include <utility>

namespace allranks {

namespace {

template <typename Function>
Function as_function(void* address) {
  return reinterpret_cast<Function>(address);
}

}  // namespace

std::string plain_call_name(const char* symbol) {
  std::string name = symbol;
  const std::size_t mark = name.rfind("_v");
  if (mark != std::string::npos && mark + 3 == name.size() && std::isdigit(static_cast<unsigned char>(name.back()))) {
    name.resize(mark);
  }
  return name;
}

void throw_driver_error(const char* call, CUresult result, CUresult (*error_name)(CUresult, const char**)) {
  const char* name = nullptr;
  if (error_name == nullptr || error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown code";
  const std::string plain = plain_call_name(call);
  throw DriverError(plain, static_cast<int>(result), name,
                    plain + " returned " + name + " (" + std::to_string(static_cast<int>(result)) + ")");
}

Driver::Driver(const SymbolLookup& lookup, const Environment& environment, std::string path) : path_(std::move(path)) {
  sim_.version = as_function<decltype(sim_.version)>(lookup("simcuVersion"));
  multicast_ = decide_multicast(simulated(), environment);
  const auto error_name = as_function<decltype(&::cuGetErrorName)>(lookup("cuGetErrorName"));
  const auto found = [&](const char* name) {
    void* const address = lookup(name);
    if (address == nullptr) throw UsageError("path=" + path_ + ": the driver lacks " + name);
    return address;
  };
// Two steps, so that cuda.h's macros give the versioned symbol its name.
#define ALLRANKS_NAME_OF(symbol) #symbol
#define ALLRANKS_SYMBOL_NAME(entry) ALLRANKS_NAME_OF(entry)
#define ALLRANKS_RESOLVE(entry)                                                                               \
  entry.set(as_function<decltype(&::entry)>(found(ALLRANKS_SYMBOL_NAME(entry))), ALLRANKS_SYMBOL_NAME(entry), \
            error_name);
  cuGetErrorName.set(error_name, "cuGetErrorName", nullptr);
  ALLRANKS_DRIVER_ENTRIES(ALLRANKS_RESOLVE)
  if (multicast_.allowed) {
    ALLRANKS_MULTICAST_ENTRIES(ALLRANKS_RESOLVE)
  }
#undef ALLRANKS_RESOLVE
#undef ALLRANKS_SYMBOL_NAME
#undef ALLRANKS_NAME_OF
  if (simulated()) {
    sim_.wait = as_function<decltype(sim_.wait)>(found("simcuWait"));
    sim_.notify = as_function<decltype(sim_.notify)>(found("simcuNotify"));
    sim_.now = as_function<decltype(sim_.now)>(found("simcuNow"));
    sim_.label = as_function<decltype(sim_.label)>(found("simcuLabel"));
  }
}

Driver::~Driver() {
  if (library_ != nullptr) dlclose(library_);
}

std::shared_ptr<const Driver> Driver::load(const std::string& path) {
  struct Closer {
    void operator()(void* library) const { dlclose(library); }
  };
  std::unique_ptr<void, Closer> library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) {
    const char* const why = dlerror();
    throw UsageError("path=" + path + ": cannot be loaded as a driver: " + (why == nullptr ? "no reason given" : why));
  }
  const auto lookup = [&](const char* name) { return dlsym(library.get(), name); };
  auto driver = std::make_shared<Driver>(lookup, read_environment(), path);
  driver->library_ = library.release();
  return driver;
}

void Driver::require_multicast() const {
  if (!multicast_.allowed) {
    throw UsageError("multicast is not supported (not allowed on this machine): " + multicast_.reason);
  }
}

bool Driver::multicast_supported(CUdevice device) const {
  if (!multicast_.allowed) return false;
  int value = 0;
  cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device);
  return value != 0;
}

std::string Driver::error_name(CUresult result) const {
  const char* name = nullptr;
  if (cuGetErrorName.raw(result, &name) != CUDA_SUCCESS || name == nullptr) return "unknown code";
  return name;
}

}  // namespace allranks
