// As much of NVML's binary interface as this library has, declared from NVIDIA's public documentation of it, because
// the packages that this is built with lack nvml.h. Names and layouts are NVML's.
#ifndef ALLRANKS_SIMNVML_ABI_HPP_
#define ALLRANKS_SIMNVML_ABI_HPP_

#include <cstddef>

extern "C" {

using nvmlDevice_t = struct nvmlDevice_st*;

enum nvmlReturn_t : unsigned {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_MEMORY = 20,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
  NVML_ERROR_UNKNOWN = 999
};

struct nvmlPciInfo_t {
  char busIdLegacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pciDeviceId;     // device << 16 | vendor
  unsigned pciSubSystemId;  // the same of the board
  char busId[32];
};

struct nvmlMemory_t {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct nvmlMemory_v2_t {
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};

enum nvmlGpuP2PStatus_t : unsigned { NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5 };

constexpr unsigned kP2PCapsCount = 5;  // read, write, NVLink, atomics, PCI

constexpr unsigned kNvLinkMaxLinks = 36;
enum nvmlNvLinkCapability_t : unsigned {
  NVML_NVLINK_CAP_P2P_SUPPORTED = 0,
  NVML_NVLINK_CAP_P2P_ATOMICS = 2,
  NVML_NVLINK_CAP_VALID = 5,
  NVML_NVLINK_CAP_COUNT = 6
};
constexpr unsigned kNvLinkDeviceTypeSwitch = 2;

struct nvmlGpuFabricInfo_t {
  unsigned char clusterUuid[16];
  nvmlReturn_t status;
  unsigned cliqueId;
  unsigned char state;
};

struct nvmlGpuFabricInfo_v2_t {
  unsigned version;
  unsigned char clusterUuid[16];
  nvmlReturn_t status;
  unsigned cliqueId;
  unsigned char state;
  unsigned healthMask;
};

struct nvmlGpuFabricInfo_v3_t {
  unsigned version;
  unsigned char clusterUuid[16];
  nvmlReturn_t status;
  unsigned cliqueId;
  unsigned char state;
  unsigned healthMask;
  unsigned char healthSummary;
};

constexpr unsigned char kFabricNotSupported = 0;
constexpr unsigned char kFabricCompleted = 3;

}  // extern "C"

// What a caller writes into the first field of a struct with versions.
template <typename Struct>
constexpr unsigned struct_version(unsigned version) {
  return static_cast<unsigned>(sizeof(Struct)) | version << 24;
}

static_assert(sizeof(nvmlPciInfo_t) == 68 && sizeof(nvmlMemory_v2_t) == 40);
static_assert(sizeof(nvmlGpuFabricInfo_t) == 28 && sizeof(nvmlGpuFabricInfo_v2_t) == 36);
static_assert(sizeof(nvmlGpuFabricInfo_v3_t) == 40 && offsetof(nvmlGpuFabricInfo_v3_t, healthSummary) == 36);

#define ALLRANKS_NVML extern "C" __attribute__((visibility("default"))) nvmlReturn_t

#endif  // ALLRANKS_SIMNVML_ABI_HPP_
