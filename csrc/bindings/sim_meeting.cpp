#include "sim_meeting.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <numeric>

namespace allranks::bindings {

namespace {

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(std::max(0, count)));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Meeting::Meeting(int rank_count) : everyone_(first_ranks(rank_count)) {}

std::vector<int> Meeting::Round::missing() const {
  std::vector<int> out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) out.push_back((*members)[i]);
  }
  return out;
}

int Meeting::ask(void* state) { return static_cast<const Round*>(state)->done ? 1 : 0; }

std::size_t Meeting::ask_missing(void* state, int* ranks, std::size_t capacity) {
  const std::vector<int> missing = static_cast<const Round*>(state)->missing();
  std::copy_n(missing.begin(), std::min(capacity, missing.size()), ranks);
  return missing.size();
}

Meeting::Purpose& Meeting::purpose_of(const std::string& what, const py::object& members) {
  if (members.is_none()) {
    const auto [found, is_new] = purposes_.try_emplace(what);
    if (is_new) {
      found->second.members = everyone_;
      found->second.next.assign(everyone_.size(), 0);
    }
    return found->second;
  }
  auto ranks = members.cast<std::vector<int>>();
  std::string key = what + '\0';
  for (const int rank : ranks) key += std::to_string(rank) + ' ';
  const auto [found, is_new] = purposes_.try_emplace(std::move(key));
  if (is_new) {
    found->second.next.assign(ranks.size(), 0);
    found->second.members = std::move(ranks);
  }
  return found->second;
}

Meeting::Place Meeting::arrive(int rank, py::object value, const std::string& what, const py::object& members) {
  Purpose& purpose = purpose_of(what, members);
  const std::size_t count = purpose.members.size();
  auto index = static_cast<std::size_t>(rank);
  if (index >= count || purpose.members[index] != rank) {
    const auto place = std::find(purpose.members.begin(), purpose.members.end(), rank);
    if (place == purpose.members.end()) {
      throw py::value_error("rank=" + std::to_string(rank) + ": no member of " + what);
    }
    index = static_cast<std::size_t>(place - purpose.members.begin());
  }
  const std::uint32_t number = purpose.next[index]++;
  Round& round = purpose.rounds[number];
  if (round.values.empty()) {
    round.object = what + " #" + std::to_string(number);
    round.members = &purpose.members;
    round.values.resize(count);
  }
  round.values[index] = std::move(value);
  ++round.come;
  return {&purpose, number, index, &round};
}

int Meeting::await(Round& round, std::optional<double> timeout_s) {
  if (round.come == round.values.size()) {
    round.done = true;
    sim_library().Notify(&round);
    return SIMCU_WAIT_READY;
  }
  const simcuWaitSpec spec{
      .struct_bytes = sizeof(simcuWaitSpec),
      .ready = &Meeting::ask,
      .waits_for = &Meeting::ask_missing,
      .state = &round,
      .key = &round,
      .call = "exchange",
      .object = round.object.c_str(),
      .timeout_us = timeout_s ? static_cast<std::uint64_t>(*timeout_s * 1e6) : SIMCU_NO_TIMEOUT,
  };
  return sim_library().Wait(&spec);
}

void Meeting::leave(const Place& place) {
  if (++place.round->taken == place.round->values.size()) place.purpose->rounds.erase(place.number);
}

py::object Meeting::exchange(int rank, py::object value, const std::string& what, std::optional<double> timeout_s,
                             const py::object& members) {
  if (over_) return nobody_comes(rank, members);
  const Place place = arrive(rank, std::move(value), what, members);
  const int result = await(*place.round, timeout_s);
  if (result != SIMCU_WAIT_READY) return py::cast(Missing{result, place.round->missing(), place.number});
  py::list out(place.round->values.size());
  for (std::size_t i = 0; i < place.round->values.size(); ++i) out[i] = place.round->values[i];
  leave(place);
  return out;
}

py::object Meeting::nobody_comes(int rank, const py::object& members) const {
  auto absent = members.is_none() ? everyone_ : members.cast<std::vector<int>>();
  std::erase(absent, rank);
  return py::cast(Missing{SIMCU_WAIT_NO_RUN, std::move(absent), 0});
}

py::object Meeting::look(int rank, py::object action, const std::string& what) {
  if (over_) return nobody_comes(rank, py::none());
  const Place place = arrive(rank, std::move(action), what, py::none());
  Round& round = *place.round;
  if (round.come == round.values.size()) {
    round.raised.assign(round.values.size(), false);
    for (std::size_t i = 0; i < round.values.size(); ++i) {
      try {
        round.values[i] = round.values[i]();
      } catch (const py::error_already_set& error) {
        round.values[i] = error.value();
        round.raised[i] = true;
      }
    }
  }
  const int result = await(round, std::nullopt);
  if (result != SIMCU_WAIT_READY) return py::cast(Missing{result, round.missing(), place.number});
  py::object seen = round.values[place.index];
  const bool raised = round.raised[place.index];
  leave(place);
  if (!raised) return seen;
  PyErr_SetObject(py::type::handle_of(seen).ptr(), seen.ptr());
  throw py::error_already_set();
}

}  // namespace allranks::bindings
