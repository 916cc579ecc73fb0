// How a communicator gives back what it owns, and what it remembers of clean-ups that failed.
//
// A clean-up never throws: a failed one is recorded, later ones still run, and close() reports the first. A call that
// fails is made once more, since most failures leave the resource as it was and giving up would leak it; codes that say
// that the context or the run is over are final.
//
// Threads: those of the rank that it belongs to, one at a time.
#ifndef ALLRANKS_COMMUNICATOR_CLEANUP_HPP_
#define ALLRANKS_COMMUNICATOR_CLEANUP_HPP_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver.hpp"
#include "policies.hpp"

namespace allranks {

struct CleanupFailure {
  std::string call;
  CUresult code = CUDA_SUCCESS;
};

class Cleanup {
 public:
  Cleanup(DriverPointer driver, std::shared_ptr<const ReleasePolicy> policy)
      : driver_(std::move(driver)), policy_(std::move(policy)) {}

  const Driver& driver() const { return *driver_; }

  // From now on owners forget what they own: the driver has taken, or will take, everything back itself.
  void abandon() { abandoned_ = true; }

  bool wanted(Resource resource) const noexcept {
    if (abandoned_) return false;
    try {
      return policy_->gives_back(resource);
    } catch (...) {
      failures_.push_back({"release policy", CUDA_ERROR_UNKNOWN});
      return true;
    }
  }

  // Calls the entry; true when the resource is gone.
  template <typename Entry, typename... Arguments>
  bool give_back(const Entry& entry, Arguments... arguments) noexcept {
    CUresult result = entry.raw(arguments...);
    if (result == CUDA_SUCCESS) return true;
    record(plain_call_name(entry.name()), result);
    if (!is_final(result)) result = entry.raw(arguments...);
    return result == CUDA_SUCCESS;
  }
  void record(std::string call, CUresult code) noexcept { failures_.push_back({std::move(call), code}); }

  const std::vector<CleanupFailure>& failures() const { return failures_; }
  std::vector<CleanupFailure> take_failures() { return std::exchange(failures_, {}); }

 private:
  static bool is_final(CUresult result) {
    return result == CUDA_ERROR_LAUNCH_TIMEOUT || result == CUDA_ERROR_DEINITIALIZED ||
           result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
           result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED;
  }

  const DriverPointer driver_;
  const std::shared_ptr<const ReleasePolicy> policy_;
  mutable std::vector<CleanupFailure> failures_;
  bool abandoned_ = false;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_CLEANUP_HPP_
