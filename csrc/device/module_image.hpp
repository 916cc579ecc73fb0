// The kernels as something that cuModuleLoadData takes.
#ifndef ALLRANKS_DEVICE_MODULE_IMAGE_HPP_
#define ALLRANKS_DEVICE_MODULE_IMAGE_HPP_

namespace allranks::device {

// For the simulated driver: functions of this host. Lives for ever.
const void* host_module_image();

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_MODULE_IMAGE_HPP_
