// One owner type for each kind of driver resource. The result of a create call goes straight into its owner.
//
// Owners are move-only, give back exactly once, and never throw. They refer to a Cleanup that outlives them.
#ifndef ALLRANKS_COMMUNICATOR_OWNERS_HPP_
#define ALLRANKS_COMMUNICATOR_OWNERS_HPP_

#include <cuda.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "cleanup.hpp"

namespace allranks {

using AllocationHandle = CUmemGenericAllocationHandle;

template <typename Traits>
class Owner {
 public:
  using Value = typename Traits::Value;

  Owner() = default;
  Owner(Cleanup& cleanup, Value value) : cleanup_(&cleanup), value_(value) {}
  Owner(Owner&& other) noexcept : cleanup_(std::exchange(other.cleanup_, nullptr)), value_(other.value_) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this != &other) {
      reset();
      cleanup_ = std::exchange(other.cleanup_, nullptr);
      value_ = other.value_;
    }
    return *this;
  }
  ~Owner() { reset(); }

  explicit operator bool() const { return cleanup_ != nullptr; }
  const Value& get() const { return value_; }

  // Gives back now; true when nothing is left. False: the driver would not take it (recorded), or it is kept on
  // purpose.
  bool reset() noexcept {
    if (cleanup_ == nullptr) return true;
    Cleanup& cleanup = *std::exchange(cleanup_, nullptr);
    return cleanup.wanted(Traits::kResource) && Traits::give_back(cleanup, value_);
  }
  // Forgets it, because something that it depends on could not be undone.
  void abandon() noexcept { cleanup_ = nullptr; }

 private:
  Cleanup* cleanup_ = nullptr;
  Value value_{};
};

template <Resource resource>
struct AllocationTraits {
  using Value = AllocationHandle;
  static constexpr Resource kResource = resource;
  static bool give_back(Cleanup& cleanup, Value handle) noexcept {
    return cleanup.give_back(cleanup.driver().cuMemRelease, handle);
  }
};
using PhysicalMemory = Owner<AllocationTraits<Resource::kPhysicalMemory>>;
using ImportedHandle = Owner<AllocationTraits<Resource::kImportedHandle>>;
using RetainedHandle = Owner<AllocationTraits<Resource::kRetainedHandle>>;
using MulticastObject = Owner<AllocationTraits<Resource::kMulticastObject>>;  // created or imported

struct AddressStretch {
  CUdeviceptr address = 0;
  std::size_t size = 0;
};
struct ReservationTraits {
  using Value = AddressStretch;
  static constexpr Resource kResource = Resource::kReservation;
  static bool give_back(Cleanup& cleanup, Value range) noexcept {
    return cleanup.give_back(cleanup.driver().cuMemAddressFree, range.address, range.size);
  }
};
using Reservation = Owner<ReservationTraits>;

struct MappingTraits {
  using Value = AddressStretch;
  static constexpr Resource kResource = Resource::kMapping;
  static bool give_back(Cleanup& cleanup, Value range) noexcept {
    return cleanup.give_back(cleanup.driver().cuMemUnmap, range.address, range.size);
  }
};
using Mapping = Owner<MappingTraits>;

struct BoundStretch {
  AllocationHandle object = 0;
  CUdevice device = 0;
  std::size_t offset = 0;
  std::size_t size = 0;
};
struct BindingTraits {
  using Value = BoundStretch;
  static constexpr Resource kResource = Resource::kMulticastBinding;
  static bool give_back(Cleanup& cleanup, Value bound) noexcept {
    return cleanup.give_back(cleanup.driver().cuMulticastUnbind, bound.object, bound.device, bound.offset, bound.size);
  }
};
using MulticastBinding = Owner<BindingTraits>;

struct DescriptorTraits {
  using Value = int;
  static constexpr Resource kResource = Resource::kDescriptor;
  static bool give_back(Cleanup& cleanup, Value descriptor) noexcept {
    if (::close(descriptor) == 0) return true;
    cleanup.record("close", CUDA_ERROR_OPERATING_SYSTEM);
    return false;
  }
};
using Descriptor = Owner<DescriptorTraits>;

struct EventTraits {
  using Value = CUevent;
  static constexpr Resource kResource = Resource::kEvent;
  static bool give_back(Cleanup& cleanup, Value event) noexcept {
    return cleanup.give_back(cleanup.driver().cuEventDestroy, event);
  }
};
using Event = Owner<EventTraits>;

struct ModuleTraits {
  using Value = CUmodule;
  static constexpr Resource kResource = Resource::kModule;
  static bool give_back(Cleanup& cleanup, Value module) noexcept {
    return cleanup.give_back(cleanup.driver().cuModuleUnload, module);
  }
};
using Module = Owner<ModuleTraits>;

// One retain of a device's primary context.
struct ContextTraits {
  using Value = CUdevice;
  static constexpr Resource kResource = Resource::kContext;
  static bool give_back(Cleanup& cleanup, Value device) noexcept {
    return cleanup.give_back(cleanup.driver().cuDevicePrimaryCtxRelease, device);
  }
};
using PrimaryContext = Owner<ContextTraits>;

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_OWNERS_HPP_
