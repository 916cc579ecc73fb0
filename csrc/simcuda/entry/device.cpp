// Devices and their attributes.
#include "cuda_api.hpp"

#include <cstdio>
#include <cstring>

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

// Values of a Hopper GPU where the machine says nothing. False: an attribute this driver does not know.
bool attribute_of(const simcuMachine& machine, CUdevice_attribute attribute, int& value) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: value = machine.compute_capability_major; return true;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: value = machine.compute_capability_minor; return true;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: value = machine.multiprocessor_count; return true;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: value = machine.multicast_supported; return true;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: value = machine.fabric_handle_supported; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: value = machine.blocks_per_multiprocessor; return true;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED: value = 1; return true;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
    case CU_DEVICE_ATTRIBUTE_TCC_DRIVER:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: value = 0; return true;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: value = 3; return true;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: value = 32; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: value = 1024; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: value = 64; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: value = 2147483647; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: value = 65535; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: value = 2048; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: value = 49152; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: value = 232448; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: value = 233472; return true;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: value = 65536; return true;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: value = 50 << 20; return true;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: value = 1980000; return true;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: value = 3201000; return true;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: value = 6144; return true;
    default: return false;
  }
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
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
      *value = device + 1;
      return CUDA_SUCCESS;
    }
    return attribute_of(machine, attribute, *value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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
    unsigned bus = 0;
    if (device == nullptr || text == nullptr || std::sscanf(text, "%*x:%x:00.0", &bus) != 1) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (bus == 0 || !is_device(process, static_cast<int>(bus) - 1)) return CUDA_ERROR_INVALID_DEVICE;
    *device = static_cast<int>(bus) - 1;
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
