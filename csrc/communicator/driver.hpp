// A CUDA driver as a table of entry points found at run time: the real libcuda.so.1 or the simulated one, one code
// path.
//
// Not a wrapper with its own semantics: an entry called as a function does what cuda.h says and throws DriverError
// unless the result is CUDA_SUCCESS; `.raw(...)` returns the result instead. Nothing here links against a driver.
// Multicast entries are absent (not even looked up) where the hardware guard forbids them.
//
// Threads: immutable after load; calls as cuda.h allows. Source: cuda.h of CUDA 13.
#ifndef ALLRANKS_COMMUNICATOR_DRIVER_HPP_
#define ALLRANKS_COMMUNICATOR_DRIVER_HPP_

#include <cuda.h>

#include <functional>
#include <memory>
#include <string>

#include "config.hpp"
#include "errors.hpp"
#include "simcuda/include/simcu.h"

namespace allranks {

template <typename Function>
class Entry;

template <typename... Arguments>
class Entry<CUresult(Arguments...)> {
 public:
  using Pointer = CUresult (*)(Arguments...);
  using ErrorName = CUresult (*)(CUresult, const char**);

  void set(Pointer pointer, const char* name, ErrorName error_name) {
    pointer_ = pointer;
    name_ = name;
    error_name_ = error_name;
  }
  explicit operator bool() const { return pointer_ != nullptr; }
  const char* name() const { return name_; }

  CUresult raw(Arguments... arguments) const {
    return pointer_ == nullptr ? CUDA_ERROR_NOT_SUPPORTED : pointer_(arguments...);
  }
  void operator()(Arguments... arguments) const {
    const CUresult result = raw(arguments...);
    if (result != CUDA_SUCCESS) fail(result);
  }
  [[noreturn]] void fail(CUresult result) const;

 private:
  Pointer pointer_ = nullptr;
  const char* name_ = "";
  ErrorName error_name_ = nullptr;
};

// "cuMemAlloc_v2" as programs call it: "cuMemAlloc".
std::string plain_call_name(const char* symbol);
// Throws the DriverError of a call that returned `result`; `error_name` may be null.
[[noreturn]] void throw_driver_error(const char* call, CUresult result, CUresult (*error_name)(CUresult, const char**));

template <typename... Arguments>
void Entry<CUresult(Arguments...)>::fail(CUresult result) const {
  throw_driver_error(name_, result, error_name_);
}

// Names as written in source; cuda.h maps some to versioned symbols (cuMemAlloc to cuMemAlloc_v2).
// clang-format off
#define ALLRANKS_DRIVER_ENTRIES(X)                                                                                    \
  X(cuInit) X(cuDriverGetVersion) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetAttribute)                          \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuCtxSynchronize)  \
  X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemGetAddressRange) X(cuPointerGetAttribute)                         \
  X(cuPointerGetAttributes) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemsetD8)                                             \
  X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap)                 \
  X(cuMemSetAccess) X(cuMemGetAllocationGranularity) X(cuMemExportToShareableHandle)                                  \
  X(cuMemImportFromShareableHandle) X(cuMemRetainAllocationHandle) X(cuMemGetAllocationPropertiesFromHandle)          \
  X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuLaunchKernel) X(cuStreamSynchronize)               \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuStreamWaitEvent)

#define ALLRANKS_MULTICAST_ENTRIES(X)                                                                   \
  X(cuMulticastCreate) X(cuMulticastAddDevice) X(cuMulticastBindMem) X(cuMulticastBindAddr)             \
  X(cuMulticastUnbind) X(cuMulticastGetGranularity)
// clang-format on

// What the simulated driver offers beyond cuda.h; null members on any other library.
struct SimExtension {
  decltype(&::simcuVersion) version = nullptr;
  decltype(&::simcuWait) wait = nullptr;
  decltype(&::simcuNotify) notify = nullptr;
  decltype(&::simcuNow) now = nullptr;
  decltype(&::simcuLabel) label = nullptr;
};

// Finds a symbol's address by name; null when there is none.
using SymbolLookup = std::function<void*(const char*)>;

class Driver {
 public:
  // Opens the library (RTLD_NOW | RTLD_LOCAL) and resolves the table. Throws UsageError when it cannot be opened or
  // lacks an entry point.
  static std::shared_ptr<const Driver> load(const std::string& path);
  // From any source of symbols; each name is looked up at most once, forbidden ones never.
  Driver(const SymbolLookup& lookup, const Environment& environment, std::string path);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  bool simulated() const { return sim_.version != nullptr; }
  const SimExtension& sim() const { return sim_; }
  const std::string& path() const { return path_; }
  const MulticastDecision& multicast_decision() const { return multicast_; }
  // Throws UsageError "not supported (not allowed on this machine)" where the guard forbids multicast.
  void require_multicast() const;
  // Allowed by the guard, and the device says that it can.
  bool multicast_supported(CUdevice device) const;
  std::string error_name(CUresult result) const;

#define ALLRANKS_ENTRY_MEMBER(entry) Entry<decltype(::entry)> entry;
  ALLRANKS_DRIVER_ENTRIES(ALLRANKS_ENTRY_MEMBER)
  ALLRANKS_MULTICAST_ENTRIES(ALLRANKS_ENTRY_MEMBER)
  Entry<decltype(::cuGetErrorName)> cuGetErrorName;
#undef ALLRANKS_ENTRY_MEMBER

 private:
  std::string path_;
  MulticastDecision multicast_;
  SimExtension sim_;
  void* library_ = nullptr;
};

using DriverPointer = std::shared_ptr<const Driver>;

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_DRIVER_HPP_
