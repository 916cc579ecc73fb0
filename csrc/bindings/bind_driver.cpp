#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "communicator/driver.hpp"
#include "communicator/properties.hpp"
#include "errors_to_python.hpp"

namespace allranks::bindings {

namespace py = pybind11;

namespace {

// Every driver call may wait (for a device, for the turn), so none holds the GIL.
using NoGil = py::call_guard<py::gil_scoped_release>;
using DriverClass = py::class_<Driver, std::shared_ptr<Driver>>;
using Handle = CUmemGenericAllocationHandle;

CUdevice device_at(const Driver& driver, int index) {
  CUdevice device = 0;
  driver.cuDeviceGet(&device, index);
  return device;
}

void set_device(const Driver& driver, int index) {
  CUcontext context = nullptr;
  const CUdevice device = device_at(driver, index);
  driver.cuDevicePrimaryCtxRetain(&context, device);
  const CUresult result = driver.cuCtxSetCurrent.raw(context);
  if (result == CUDA_SUCCESS) return;
  driver.cuDevicePrimaryCtxRelease.raw(device);  // the first error is the one to report
  driver.cuCtxSetCurrent.fail(result);
}

void bind_devices(DriverClass& driver) {
  driver.def(
            "init", [](const Driver& d) { d.cuInit(0); }, NoGil())
      .def(
          "version",
          [](const Driver& d) {
            int version = 0;
            d.cuDriverGetVersion(&version);
            return version;
          },
          NoGil())
      .def(
          "device_count",
          [](const Driver& d) {
            int count = 0;
            d.cuDeviceGetCount(&count);
            return count;
          },
          NoGil())
      .def(
          "device_attribute",
          [](const Driver& d, int attribute, int device) {
            int value = 0;
            d.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device_at(d, device));
            return value;
          },
          py::arg("attribute"), py::arg("device"), NoGil())
      .def("set_device", &set_device, py::arg("device"), NoGil())
      .def(
          "reset_device", [](const Driver& d, int device) { d.cuDevicePrimaryCtxRelease(device_at(d, device)); },
          py::arg("device"), NoGil())
      .def("synchronize", [](const Driver& d) { d.cuCtxSynchronize(); }, NoGil());
}

Handle mem_create(const Driver& driver, std::size_t size, int device, bool shareable) {
  const CUmemAllocationProp properties = allocation_properties(device_at(driver, device), shareable);
  Handle handle = 0;
  driver.cuMemCreate(&handle, size, &properties, 0);
  return handle;
}

CUdeviceptr mem_address_reserve(const Driver& driver, std::size_t size, std::size_t alignment, CUdeviceptr address) {
  CUdeviceptr reserved = 0;
  driver.cuMemAddressReserve(&reserved, size, alignment, address, 0);
  return reserved;
}

void mem_set_access(const Driver& driver, CUdeviceptr address, std::size_t size, const std::vector<int>& devices) {
  std::vector<CUmemAccessDesc> access;
  access.reserve(devices.size());
  for (const int device : devices) access.push_back(read_write_access(device_at(driver, device)));
  driver.cuMemSetAccess(address, size, access.data(), access.size());
}

std::size_t mem_granularity(const Driver& driver, int device, bool recommended) {
  const CUmemAllocationProp properties = allocation_properties(device_at(driver, device), true);
  std::size_t granularity = 0;
  driver.cuMemGetAllocationGranularity(
      &granularity, &properties, recommended ? CU_MEM_ALLOC_GRANULARITY_RECOMMENDED : CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  return granularity;
}

void bind_virtual_memory(DriverClass& driver) {
  driver.def("mem_create", &mem_create, py::arg("size"), py::arg("device"), py::arg("shareable"), NoGil())
      .def(
          "mem_release", [](const Driver& d, Handle handle) { d.cuMemRelease(handle); }, py::arg("handle"), NoGil())
      .def("mem_address_reserve", &mem_address_reserve, py::arg("size"), py::arg("alignment"), py::arg("address"),
           NoGil())
      .def(
          "mem_address_free", [](const Driver& d, CUdeviceptr a, std::size_t size) { d.cuMemAddressFree(a, size); },
          py::arg("address"), py::arg("size"), NoGil())
      .def(
          "mem_map",
          [](const Driver& d, CUdeviceptr address, std::size_t size, Handle handle, std::size_t offset) {
            d.cuMemMap(address, size, offset, handle, 0);
          },
          py::arg("address"), py::arg("size"), py::arg("handle"), py::arg("offset"), NoGil())
      .def(
          "mem_unmap", [](const Driver& d, CUdeviceptr address, std::size_t size) { d.cuMemUnmap(address, size); },
          py::arg("address"), py::arg("size"), NoGil())
      .def("mem_set_access", &mem_set_access, py::arg("address"), py::arg("size"), py::arg("devices"), NoGil())
      .def("mem_granularity", &mem_granularity, py::arg("device"), py::arg("recommended"), NoGil())
      .def(
          "mem_retain",
          [](const Driver& d, CUdeviceptr address) {
            Handle handle = 0;
            d.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address));
            return handle;
          },
          py::arg("address"), NoGil())
      .def(
          "mem_export",
          [](const Driver& d, Handle handle) {
            int descriptor = -1;
            d.cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
            return descriptor;
          },
          py::arg("handle"), NoGil())
      .def(
          "mem_import",
          [](const Driver& d, int descriptor) {
            Handle handle = 0;
            void* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
            d.cuMemImportFromShareableHandle(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
            return handle;
          },
          py::arg("descriptor"), NoGil());
}

std::string copy_from_device(const Driver& driver, CUdeviceptr address, std::size_t size) {
  std::string bytes(size, '\0');
  if (size > 0) driver.cuMemcpyDtoH(bytes.data(), address, size);
  return bytes;
}

void copy_to_device(const Driver& driver, CUdeviceptr address, const py::buffer& data) {
  const py::buffer_info info = data.request();
  if (!PyBuffer_IsContiguous(info.view(), 'C')) throw UsageError("data: not a contiguous buffer of bytes");
  const auto size = static_cast<std::size_t>(info.size * info.itemsize);
  const py::gil_scoped_release nogil;
  if (size > 0) driver.cuMemcpyHtoD(address, info.ptr, size);
}

void bind_plain_memory(DriverClass& driver) {
  driver
      .def(
          "mem_alloc",
          [](const Driver& d, std::size_t size) {
            CUdeviceptr address = 0;
            d.cuMemAlloc(&address, size);
            return address;
          },
          py::arg("size"), NoGil())
      .def(
          "mem_free", [](const Driver& d, CUdeviceptr address) { d.cuMemFree(address); }, py::arg("address"), NoGil())
      .def(
          "mem_get_info",
          [](const Driver& d) {
            std::size_t free_bytes = 0;
            std::size_t total_bytes = 0;
            d.cuMemGetInfo(&free_bytes, &total_bytes);
            return std::make_pair(free_bytes, total_bytes);
          },
          NoGil())
      .def(
          "mem_address_range",
          [](const Driver& d, CUdeviceptr address) {
            CUdeviceptr base = 0;
            std::size_t size = 0;
            d.cuMemGetAddressRange(&base, &size, address);
            return std::make_pair(base, size);
          },
          py::arg("address"), NoGil())
      .def(
          "buffer_id",
          [](const Driver& d, CUdeviceptr address) {
            unsigned long long id = 0;
            d.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
            return id;
          },
          py::arg("address"), NoGil())
      .def(
          "memset8",
          [](const Driver& d, CUdeviceptr address, unsigned char value, std::size_t count) {
            d.cuMemsetD8(address, value, count);
          },
          py::arg("address"), py::arg("value"), py::arg("count"), NoGil())
      .def("copy_to_device", &copy_to_device, py::arg("address"), py::arg("data"))
      .def(
          "copy_from_device",
          [](const Driver& d, CUdeviceptr address, std::size_t size) {
            std::string bytes;
            {
              const py::gil_scoped_release nogil;
              bytes = copy_from_device(d, address, size);
            }
            return py::bytes(bytes);
          },
          py::arg("address"), py::arg("size"));
}

Handle multicast_create(const Driver& driver, std::size_t size, unsigned device_count) {
  driver.require_multicast();
  const CUmulticastObjectProp properties = multicast_properties(size, device_count);
  Handle handle = 0;
  driver.cuMulticastCreate(&handle, &properties);
  return handle;
}

std::size_t multicast_granularity(const Driver& driver, std::size_t size, unsigned device_count, bool recommended) {
  driver.require_multicast();
  const CUmulticastObjectProp properties = multicast_properties(size, device_count);
  std::size_t granularity = 0;
  driver.cuMulticastGetGranularity(
      &granularity, &properties, recommended ? CU_MULTICAST_GRANULARITY_RECOMMENDED : CU_MULTICAST_GRANULARITY_MINIMUM);
  return granularity;
}

void bind_multicast(DriverClass& driver) {
  driver.def("multicast_create", &multicast_create, py::arg("size"), py::arg("device_count"), NoGil())
      .def(
          "multicast_add_device",
          [](const Driver& d, Handle handle, int device) {
            d.require_multicast();
            d.cuMulticastAddDevice(handle, device_at(d, device));
          },
          py::arg("handle"), py::arg("device"), NoGil())
      .def(
          "multicast_bind_mem",
          [](const Driver& d, Handle handle, std::size_t offset, Handle memory, std::size_t memory_offset,
             std::size_t size) {
            d.require_multicast();
            d.cuMulticastBindMem(handle, offset, memory, memory_offset, size, 0);
          },
          py::arg("handle"), py::arg("offset"), py::arg("memory"), py::arg("memory_offset"), py::arg("size"), NoGil())
      .def(
          "multicast_bind_address",
          [](const Driver& d, Handle handle, std::size_t offset, CUdeviceptr address, std::size_t size) {
            d.require_multicast();
            d.cuMulticastBindAddr(handle, offset, address, size, 0);
          },
          py::arg("handle"), py::arg("offset"), py::arg("address"), py::arg("size"), NoGil())
      .def(
          "multicast_unbind",
          [](const Driver& d, Handle handle, int device, std::size_t offset, std::size_t size) {
            d.require_multicast();
            d.cuMulticastUnbind(handle, device_at(d, device), offset, size);
          },
          py::arg("handle"), py::arg("device"), py::arg("offset"), py::arg("size"), NoGil())
      .def("multicast_granularity", &multicast_granularity, py::arg("size"), py::arg("device_count"),
           py::arg("recommended"), NoGil())
      .def(
          "multicast_supported",
          [](const Driver& d, int device) { return d.multicast_supported(device_at(d, device)); }, py::arg("device"),
          NoGil());
}

// The names that loading a table asks for when a library has exactly the symbols `present`, in order, and what the
// guard decided. Nothing is opened and nothing is called: this is how the guard is tested.
std::pair<std::vector<std::string>, MulticastDecision> record_lookups(const std::vector<std::string>& present,
                                                                      const Environment& environment) {
  std::vector<std::string> asked;
  static char never_called = 0;
  const Driver driver(
      [&](const char* name) -> void* {
        asked.emplace_back(name);
        for (const std::string& symbol : present) {
          const bool family = symbol.ends_with('*') &&
                              std::string_view(name).starts_with(std::string_view(symbol).substr(0, symbol.size() - 1));
          if (family || symbol == name) return &never_called;
        }
        return nullptr;
      },
      environment, "a recording table");
  return {asked, driver.multicast_decision()};
}

}  // namespace

void bind_driver(py::module_& module) {
  translate_errors();
  py::class_<MulticastDecision>(module, "MulticastDecision")
      .def_readonly("allowed", &MulticastDecision::allowed)
      .def_readonly("reason", &MulticastDecision::reason);
  module.def("decide_multicast", &decide_multicast, py::arg("simulated"), py::arg("environment"));
  module.def("record_lookups", &record_lookups, py::arg("present"), py::arg("environment"));

  DriverClass driver(module, "Driver");
  driver
      .def_static(
          "load", [](const std::string& path) { return std::const_pointer_cast<Driver>(Driver::load(path)); },
          py::arg("path"), NoGil())
      .def_property_readonly("path", &Driver::path)
      .def_property_readonly("simulated", &Driver::simulated)
      .def_property_readonly("multicast_decision", &Driver::multicast_decision)
      .def(
          "error_name", [](const Driver& d, int code) { return d.error_name(static_cast<CUresult>(code)); },
          py::arg("code"));
  bind_devices(driver);
  bind_virtual_memory(driver);
  bind_plain_memory(driver);
  bind_multicast(driver);
}

}  // namespace allranks::bindings
