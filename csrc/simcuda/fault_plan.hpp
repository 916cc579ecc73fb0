// What is to go wrong in a run, written as a text: "RANK:CALL:K=ACTION", several separated by ";".
//
// RANK is a number, or * for each rank. CALL is a driver call's name, or * for any. K counts such calls of a rank's
// process, from 0. ACTION is a CUresult by name or number, with which the call fails without being carried out;
// delay:MILLISECONDS, after which it's carried out; or kill and kill-after: the process ends by SIGKILL before the call
// is carried out, or once it was and before it is answered.
#ifndef ALLRANKS_SIMCUDA_FAULT_PLAN_HPP_
#define ALLRANKS_SIMCUDA_FAULT_PLAN_HPP_

#include <cuda.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calls.hpp"

namespace allranks::sim {

enum class FaultAction { kFail, kDelay, kKill, kKillAfter };

struct PlannedFault {
  std::optional<int> rank;   // none: each rank
  Call call = Call::kCount;  // kCount: any
  std::uint64_t k = 0;
  FaultAction action = FaultAction::kFail;
  CUresult code = CUDA_SUCCESS;
  std::chrono::milliseconds delay{0};
  std::string text;
};

struct FaultPlan {
  std::vector<PlannedFault> faults;
  std::string objection;  // empty: the text was understood
};

FaultPlan fault_plan(std::string_view text);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_FAULT_PLAN_HPP_
