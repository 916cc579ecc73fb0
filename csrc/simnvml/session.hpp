// Whether the library is initialised, and which device a handle means. Threads: any.
#ifndef ALLRANKS_SIMNVML_SESSION_HPP_
#define ALLRANKS_SIMNVML_SESSION_HPP_

#include <cuda.h>

#include "abi.hpp"
#include "simcudart/driver.hpp"

namespace allranks::nvml {

// Counted: as many shutdowns as initialisations.
nvmlReturn_t begin();
nvmlReturn_t end();
bool has_begun();

nvmlReturn_t as_return(CUresult result);

int device_count();
nvmlDevice_t handle_of(int device);
// -1: no device's handle.
int device_of(nvmlDevice_t handle);

// 0 for an attribute that the driver does not know.
int attribute(int device, CUdevice_attribute wanted);
bool can_access(int device, int peer);
// Whether the device reaches any other one, which here it does by NVLink.
bool has_links(int device);

// Runs body() when the library is initialised.
template <typename Body>
nvmlReturn_t call(const Body& body) {
  return has_begun() ? body() : NVML_ERROR_UNINITIALIZED;
}

// Runs body(device) for a handle that means one.
template <typename Body>
nvmlReturn_t of_device(nvmlDevice_t handle, const Body& body) {
  return call([&] {
    const int device = device_of(handle);
    return device < 0 ? NVML_ERROR_INVALID_ARGUMENT : body(device);
  });
}

// Writes a text with its zero.
nvmlReturn_t write_text(const char* text, char* room, unsigned length);

}  // namespace allranks::nvml

#endif  // ALLRANKS_SIMNVML_SESSION_HPP_
