// Initialisation, versions, texts of errors.
#include <cstdio>

#include "session.hpp"

using namespace allranks::nvml;

namespace {

struct Branch {
  int cuda_version;
  const char* driver;
};

// The driver branch that a version of CUDA came with. The newest one stands for whatever comes later.
constexpr Branch kBranches[] = {{12080, "570.00"}, {12090, "575.00"}, {13000, "580.00"}, {13010, "590.00"}};

const char* driver_version() {
  int version = 0;
  ALLRANKS_DRIVER(cuDriverGetVersion)(&version);
  const char* found = kBranches[0].driver;
  for (const Branch& branch : kBranches) {
    if (branch.cuda_version <= version) found = branch.driver;
  }
  return found;
}

}  // namespace

ALLRANKS_NVML nvmlInit_v2() { return begin(); }
ALLRANKS_NVML nvmlInit() { return begin(); }
ALLRANKS_NVML nvmlInitWithFlags(unsigned) { return begin(); }
ALLRANKS_NVML nvmlShutdown() { return end(); }

ALLRANKS_NVML nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return call([&] { return write_text(driver_version(), version, length); });
}

ALLRANKS_NVML nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  char text[32];
  std::snprintf(text, sizeof text, "13.%s", driver_version());
  return write_text(text, version, length);  // [nvml.h] also before initialisation
}

ALLRANKS_NVML nvmlSystemGetCudaDriverVersion(int* version) {
  return version == nullptr ? NVML_ERROR_INVALID_ARGUMENT : as_return(ALLRANKS_DRIVER(cuDriverGetVersion)(version));
}

ALLRANKS_NVML nvmlSystemGetCudaDriverVersion_v2(int* version) { return nvmlSystemGetCudaDriverVersion(version); }

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t code) {
  switch (static_cast<unsigned>(code)) {
    case 0: return "Success";
    case 1: return "Uninitialized";
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 5: return "Already Initialized";
    case 6: return "Not Found";
    case 7: return "Insufficient Size";
    case 8: return "Insufficient External Power";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 11: return "Interrupt Request Issue";
    case 12: return "NVML Shared Library Not Found";
    case 13: return "Function Not Found";
    case 14: return "Corrupted infoROM";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 17: return "Operating System Error";
    case 18: return "Driver/library version mismatch";
    case 19: return "In use by another client";
    case 20: return "Insufficient Memory";
    case 21: return "No data";
    case 22: return "vGPU not supported with ECC enabled";
    case 23: return "Insufficient Resources";
    case 24: return "Frequency not supported";
    case 25: return "Argument version mismatch";
    case 26: return "Deprecated";
    case 27: return "Not Ready";
    case 28: return "GPU Not Found";
    case 29: return "Invalid State";
    default: return "Unknown Error";
  }
}
