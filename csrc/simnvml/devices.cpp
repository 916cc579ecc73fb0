// Devices and what they are, from the driver's attributes.
#include <cstdio>
#include <cstring>

#include "session.hpp"

using namespace allranks::nvml;

namespace {

using Uuid = char[48];

CUresult uuid_of(int device, Uuid& text) {
  CUuuid uuid{};
  const CUresult result = ALLRANKS_DRIVER(cuDeviceGetUuid)(&uuid, device);
  char* end = text + std::snprintf(text, sizeof text, "GPU-");
  for (int i = 0; i < 16; ++i) {
    const char* const dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
    const auto room = static_cast<std::size_t>(text + sizeof text - end);
    end += std::snprintf(end, room, "%s%02x", dash, static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
  }
  return result;
}

// Memory as all processes use it. The driver says it of a current context only, so there is one for a moment.
CUresult memory_of(int device, std::size_t& free, std::size_t& total) {
  CUcontext context = nullptr;
  CUresult result = ALLRANKS_DRIVER(cuDevicePrimaryCtxRetain)(&context, device);
  if (result != CUDA_SUCCESS) return result;
  result = ALLRANKS_DRIVER(cuCtxPushCurrent)(context);
  if (result == CUDA_SUCCESS) {
    result = ALLRANKS_DRIVER(cuMemGetInfo)(&free, &total);
    ALLRANKS_DRIVER(cuCtxPopCurrent)(&context);
  }
  ALLRANKS_DRIVER(cuDevicePrimaryCtxRelease)(device);
  return result;
}

}  // namespace

ALLRANKS_NVML nvmlDeviceGetCount_v2(unsigned* count) {
  return call([&] {
    if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *count = static_cast<unsigned>(device_count());
    return NVML_SUCCESS;
  });
}

ALLRANKS_NVML nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

ALLRANKS_NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* handle) {
  return call([&] {
    if (handle == nullptr || index >= static_cast<unsigned>(device_count())) return NVML_ERROR_INVALID_ARGUMENT;
    *handle = handle_of(static_cast<int>(index));
    return NVML_SUCCESS;
  });
}

ALLRANKS_NVML nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

ALLRANKS_NVML nvmlDeviceGetHandleByUUID(const char* wanted, nvmlDevice_t* handle) {
  return call([&] {
    if (wanted == nullptr || handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const int count = device_count();
    for (int device = 0; device < count; ++device) {
      Uuid text;
      if (uuid_of(device, text) != CUDA_SUCCESS || std::strcmp(text, wanted) != 0) continue;
      *handle = handle_of(device);
      return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
  });
}

ALLRANKS_NVML nvmlDeviceGetHandleByPciBusId_v2(const char* text, nvmlDevice_t* handle) {
  return call([&] {
    if (text == nullptr || handle == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    CUdevice device = 0;
    const CUresult result = ALLRANKS_DRIVER(cuDeviceGetByPCIBusId)(&device, text);
    if (result == CUDA_ERROR_INVALID_DEVICE) return NVML_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS) *handle = handle_of(device);
    return as_return(result);
  });
}

ALLRANKS_NVML nvmlDeviceGetHandleByPciBusId(const char* text, nvmlDevice_t* handle) {
  return nvmlDeviceGetHandleByPciBusId_v2(text, handle);
}

ALLRANKS_NVML nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned* index) {
  return of_device(handle, [&](int device) {
    if (index == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *index = static_cast<unsigned>(device);
    return NVML_SUCCESS;
  });
}

ALLRANKS_NVML nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned* number) {
  return nvmlDeviceGetIndex(handle, number);
}

ALLRANKS_NVML nvmlDeviceGetName(nvmlDevice_t handle, char* name, unsigned length) {
  return of_device(handle, [&](int device) {
    char text[256];
    const CUresult result = ALLRANKS_DRIVER(cuDeviceGetName)(text, sizeof text, device);
    return result != CUDA_SUCCESS ? as_return(result) : write_text(text, name, length);
  });
}

ALLRANKS_NVML nvmlDeviceGetUUID(nvmlDevice_t handle, char* uuid, unsigned length) {
  return of_device(handle, [&](int device) {
    Uuid text;
    const CUresult result = uuid_of(device, text);
    return result != CUDA_SUCCESS ? as_return(result) : write_text(text, uuid, length);
  });
}

ALLRANKS_NVML nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t* info) {
  return of_device(handle, [&](int device) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlPciInfo_t found{};
    found.domain = static_cast<unsigned>(attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
    found.bus = static_cast<unsigned>(attribute(device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
    found.device = static_cast<unsigned>(attribute(device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
    found.pciDeviceId = static_cast<unsigned>(attribute(device, CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID));
    found.pciSubSystemId = static_cast<unsigned>(attribute(device, CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID));
    std::snprintf(found.busIdLegacy, sizeof found.busIdLegacy, "%04X:%02X:%02X.0", found.domain & 0xffffu,
                  found.bus & 0xffu, found.device & 0xffu);
    std::snprintf(found.busId, sizeof found.busId, "%08X:%02X:%02X.0", found.domain, found.bus & 0xffu,
                  found.device & 0xffu);
    *info = found;
    return NVML_SUCCESS;
  });
}

ALLRANKS_NVML nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t* memory) {
  return of_device(handle, [&](int device) {
    std::size_t free = 0;
    std::size_t total = 0;
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    const CUresult result = memory_of(device, free, total);
    if (result == CUDA_SUCCESS) *memory = {.total = total, .free = free, .used = total - free};
    return as_return(result);
  });
}

ALLRANKS_NVML nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t* memory) {
  return of_device(handle, [&](int device) {
    std::size_t free = 0;
    std::size_t total = 0;
    if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != struct_version<nvmlMemory_v2_t>(2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    const CUresult result = memory_of(device, free, total);
    if (result == CUDA_SUCCESS) {
      *memory = {.version = memory->version, .total = total, .reserved = 0, .free = free, .used = total - free};
    }
    return as_return(result);
  });
}

ALLRANKS_NVML nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int* major, int* minor) {
  return of_device(handle, [&](int device) {
    if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    *major = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    *minor = attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    return NVML_SUCCESS;
  });
}
