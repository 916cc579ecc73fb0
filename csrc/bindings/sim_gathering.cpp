#include "sim_gathering.hpp"

#include <pybind11/pybind11.h>

#include <algorithm>

#include "sim_library.hpp"

namespace allranks::bindings {

int Gathering::ask(void* state) {
  const auto& self = *static_cast<const Gathering*>(state);
  return self.count_ == self.members_.size() ? 1 : 0;
}

std::size_t Gathering::ask_missing(void* state, int* ranks, std::size_t capacity) {
  const std::vector<int> missing = static_cast<const Gathering*>(state)->missing();
  std::copy_n(missing.begin(), std::min(capacity, missing.size()), ranks);
  return missing.size();
}

std::vector<int> Gathering::missing() const {
  std::vector<int> out;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (!come_[i]) out.push_back(members_[i]);
  }
  return out;
}

int Gathering::arrive(int rank, std::optional<double> timeout_s) {
  const auto place = std::find(members_.begin(), members_.end(), rank);
  if (place == members_.end())
    throw pybind11::value_error("rank=" + std::to_string(rank) + ": no member of " + object_);
  const auto index = static_cast<std::size_t>(place - members_.begin());
  if (!come_[index]) ++count_;
  come_[index] = true;
  if (count_ == members_.size()) {
    sim_library().Notify(this);
    return SIMCU_WAIT_READY;
  }
  const simcuWaitSpec spec{
      .struct_bytes = sizeof(simcuWaitSpec),
      .ready = &Gathering::ask,
      .waits_for = &Gathering::ask_missing,
      .state = this,
      .key = this,
      .call = "exchange",
      .object = object_.c_str(),
      .timeout_us = timeout_s ? static_cast<std::uint64_t>(*timeout_s * 1e6) : SIMCU_NO_TIMEOUT,
  };
  return sim_library().Wait(&spec);
}

}  // namespace allranks::bindings
