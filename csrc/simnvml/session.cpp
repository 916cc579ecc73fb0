#include "session.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>

namespace allranks::nvml {

namespace {

constexpr std::uintptr_t kFirstHandle = 0x6e760000;

std::atomic<int> begun = 0;

}  // namespace

nvmlReturn_t begin() {
  if (!cudart::has_driver() || ALLRANKS_DRIVER(cuInit)(0) != CUDA_SUCCESS) return NVML_ERROR_DRIVER_NOT_LOADED;
  ++begun;
  return NVML_SUCCESS;
}

nvmlReturn_t end() {
  int count = begun;
  while (count > 0) {
    if (begun.compare_exchange_weak(count, count - 1)) return NVML_SUCCESS;
  }
  return NVML_ERROR_UNINITIALIZED;
}

bool has_begun() { return begun > 0; }

nvmlReturn_t as_return(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS: return NVML_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE: return NVML_ERROR_INVALID_ARGUMENT;
    case CUDA_ERROR_NOT_SUPPORTED: return NVML_ERROR_NOT_SUPPORTED;
    case CUDA_ERROR_OUT_OF_MEMORY: return NVML_ERROR_MEMORY;
    default: return NVML_ERROR_UNKNOWN;
  }
}

int device_count() {
  int count = 0;
  return ALLRANKS_DRIVER(cuDeviceGetCount)(&count) == CUDA_SUCCESS ? count : 0;
}

nvmlDevice_t handle_of(int device) {
  return reinterpret_cast<nvmlDevice_t>(kFirstHandle + static_cast<std::uintptr_t>(device));
}

int device_of(nvmlDevice_t handle) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number < kFirstHandle || number - kFirstHandle >= static_cast<std::uintptr_t>(device_count())) return -1;
  return static_cast<int>(number - kFirstHandle);
}

int attribute(int device, CUdevice_attribute wanted) {
  int value = 0;
  return ALLRANKS_DRIVER(cuDeviceGetAttribute)(&value, wanted, device) == CUDA_SUCCESS ? value : 0;
}

bool can_access(int device, int peer) {
  int can = 0;
  return ALLRANKS_DRIVER(cuDeviceCanAccessPeer)(&can, device, peer) == CUDA_SUCCESS && can != 0;
}

bool has_links(int device) {
  const int count = device_count();
  for (int peer = 0; peer < count; ++peer) {
    if (peer != device && can_access(device, peer)) return true;
  }
  return false;
}

nvmlReturn_t write_text(const char* text, char* room, unsigned length) {
  const std::size_t size = std::strlen(text) + 1;
  if (room == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (length < size) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(room, text, size);
  return NVML_SUCCESS;
}

}  // namespace allranks::nvml
