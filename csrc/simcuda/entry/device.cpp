// Devices and their attributes.
#include "cuda_api.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "../device_attributes.hpp"

using namespace allranks::sim;

namespace {

bool is_device(const Process& process, CUdevice device) {
  return device >= 0 && device < process.node().machine.device_count;
}

// Calls body(machine) for a valid device and a pointer for the answer.
template <typename Body>
CUresult ask_device(Call call, CUdevice device, const void* answer, const Body& body) {
  return entry(call, Needs::kInit, [&](Process& process) {
    if (answer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(process, device)) return CUDA_ERROR_INVALID_DEVICE;
    return body(process.node().machine);
  });
}

// The hexadecimal number that the text begins with, and `after` behind it, taken off the text.
std::optional<unsigned long> take_number(const char*& text, char after) {
  char* end = nullptr;
  const unsigned long number = std::strtoul(text, &end, 16);
  if (end == text || *end != after) return std::nullopt;
  text = after == '\0' ? end : end + 1;
  return number;
}

// The device of "[domain:]bus:device[.function]": device i is at 0000:(i + 1):00.0. -1: none, nullopt: no such text.
std::optional<long> device_at(const char* text) {
  const std::string_view whole = text;
  if (std::count(whole.begin(), whole.end(), ':') == 2) {
    const auto domain = take_number(text, ':');
    if (!domain) return std::nullopt;
    if (*domain != 0) return -1;
  }
  const bool function = whole.find('.') != std::string_view::npos;
  const auto bus = take_number(text, ':');
  const auto device = bus ? take_number(text, function ? '.' : '\0') : std::nullopt;
  const auto last = device && function ? take_number(text, '\0') : device;
  if (!last) return std::nullopt;
  return *bus == 0 || *device != 0 || (function && *last != 0) ? -1 : static_cast<long>(*bus) - 1;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  return entry(Call::kDeviceGetCount, Needs::kInit, [&](Process& process) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = process.node().machine.device_count;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  return ask_device(Call::kDeviceGet, ordinal, device, [&](const simcuMachine&) {
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device) {
  return ask_device(Call::kDeviceGetName, device, name, [&](const simcuMachine& machine) {
    if (length < 1) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<std::size_t>(length), "Simulated GPU (%s)", machine.name);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return ask_device(Call::kDeviceGetUuid, device, uuid, [&](const simcuMachine&) {
    std::memset(uuid->bytes, 0, sizeof uuid->bytes);
    std::memcpy(uuid->bytes, "simcuda", 7);
    uuid->bytes[15] = static_cast<char>(device);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  return entry(Call::kDeviceTotalMem, Needs::kInit, [&](Process& process) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(process, device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = process.node().machine.memory_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return ask_device(Call::kDeviceGetAttribute, device, value, [&](const simcuMachine& machine) {
    const std::optional<int> found = attribute_of(machine, device, attribute);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    *value = *found;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return ask_device(Call::kDeviceGetPCIBusId, device, text, [&](const simcuMachine&) {
    if (length < 13) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device + 1));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  return entry(Call::kDeviceGetByPCIBusId, Needs::kInit, [&](Process& process) {
    if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::optional<long> found = device_at(text);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    if (*found < 0 || *found >= process.node().machine.device_count) return CUDA_ERROR_INVALID_DEVICE;
    *device = static_cast<CUdevice>(*found);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return entry(Call::kDeviceCanAccessPeer, Needs::kInit, [&](Process& process) {
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(process, device) || !is_device(process, peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && process.node().machine.peer_access != 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
  return entry(Call::kDeviceGetP2PAttribute, Needs::kInit, [&](Process& process) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(process, device) || !is_device(process, peer) || device == peer) return CUDA_ERROR_INVALID_DEVICE;
    const int access = process.node().machine.peer_access;
    switch (attribute) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: *value = 0; return CUDA_SUCCESS;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED: *value = access; return CUDA_SUCCESS;
      default: return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

}  // extern "C"
