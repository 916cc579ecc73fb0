// How devices reach each other. What the machine says is whether they do; the rest is an [assumption]: each has the 18
// links of an H100, and they lead to four switches.
#include <cstdio>
#include <cstring>

#include "session.hpp"

using namespace allranks::nvml;

namespace {

constexpr unsigned kLinks = 18;
constexpr unsigned kSwitches = 4;
constexpr unsigned kFirstSwitchBus = 0xf0;

// Runs body() for a link that there is.
template <typename Body>
nvmlReturn_t of_link(nvmlDevice_t handle, unsigned link, const Body& body) {
  return of_device(handle, [&](int device) {
    if (link >= kNvLinkMaxLinks) return NVML_ERROR_INVALID_ARGUMENT;
    return link < kLinks && has_links(device) ? body() : NVML_ERROR_NOT_SUPPORTED;
  });
}

template <typename Value>
nvmlReturn_t answer(Value* place, Value value) {
  if (place == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *place = value;
  return NVML_SUCCESS;
}

// With a cluster of its own only where handles can leave the node; else it is all zeros, as on a host by itself.
template <typename Info>
void describe_fabric(int device, Info& info) {
  const bool linked = has_links(device);
  std::memset(info.clusterUuid, 0, sizeof info.clusterUuid);
  if (linked && attribute(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) != 0) {
    std::memcpy(info.clusterUuid, "simcuda", 7);
  }
  info.status = linked ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
  info.cliqueId = 0;
  info.state = linked ? kFabricCompleted : kFabricNotSupported;
}

}  // namespace

ALLRANKS_NVML nvmlDeviceGetNvLinkState(nvmlDevice_t handle, unsigned link, unsigned* active) {
  return of_link(handle, link, [&] { return answer(active, 1u); });
}

ALLRANKS_NVML nvmlDeviceGetNvLinkCapability(nvmlDevice_t handle, unsigned link, nvmlNvLinkCapability_t capability,
                                            unsigned* value) {
  return of_link(handle, link, [&] {
    if (capability >= NVML_NVLINK_CAP_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    const bool has = capability == NVML_NVLINK_CAP_P2P_SUPPORTED || capability == NVML_NVLINK_CAP_P2P_ATOMICS ||
                     capability == NVML_NVLINK_CAP_VALID;
    return answer(value, has ? 1u : 0u);
  });
}

ALLRANKS_NVML nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t handle, unsigned link, unsigned* type) {
  return of_link(handle, link, [&] { return answer(type, kNvLinkDeviceTypeSwitch); });
}

ALLRANKS_NVML nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t handle, unsigned link, nvmlPciInfo_t* info) {
  return of_link(handle, link, [&] {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlPciInfo_t found{};
    found.bus = kFirstSwitchBus + link % kSwitches;
    std::snprintf(found.busIdLegacy, sizeof found.busIdLegacy, "0000:%02X:00.0", found.bus);
    std::snprintf(found.busId, sizeof found.busId, "00000000:%02X:00.0", found.bus);
    *info = found;
    return NVML_SUCCESS;
  });
}

ALLRANKS_NVML nvmlDeviceGetP2PStatus(nvmlDevice_t handle, nvmlDevice_t peer_handle, unsigned index,
                                     nvmlGpuP2PStatus_t* status) {
  return of_device(handle, [&](int device) {
    const int peer = device_of(peer_handle);
    if (peer < 0 || peer == device || index >= kP2PCapsCount) return NVML_ERROR_INVALID_ARGUMENT;
    return answer(status, can_access(device, peer) ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED);
  });
}

ALLRANKS_NVML nvmlDeviceGetGpuFabricInfo(nvmlDevice_t handle, nvmlGpuFabricInfo_t* info) {
  return of_device(handle, [&](int device) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    describe_fabric(device, *info);
    return NVML_SUCCESS;
  });
}

// Both versions begin alike; the later one has one field more.
ALLRANKS_NVML nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t handle, nvmlGpuFabricInfo_v3_t* info) {
  return of_device(handle, [&](int device) {
    if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
    if (info->version == struct_version<nvmlGpuFabricInfo_v3_t>(3)) {
      describe_fabric(device, *info);
      info->healthMask = 0;
      info->healthSummary = 0;
      return NVML_SUCCESS;
    }
    if (info->version != struct_version<nvmlGpuFabricInfo_v2_t>(2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    auto& older = *reinterpret_cast<nvmlGpuFabricInfo_v2_t*>(info);
    describe_fabric(device, older);
    older.healthMask = 0;
    return NVML_SUCCESS;
  });
}
