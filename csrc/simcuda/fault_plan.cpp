#include "fault_plan.hpp"

#include <charconv>
#include <system_error>
#include <utility>

#include "generated.hpp"

namespace allranks::sim {

namespace {

constexpr std::string_view kForm =
    ": RANK:CALL:K=ACTION, as in 1:cuMemMap:0=CUDA_ERROR_OUT_OF_MEMORY, 0:cuMemCreate:2=delay:50, *:*:17=kill";

template <typename Number>
bool take_number(std::string_view text, Number& number) {
  if (text.empty()) return false;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(&*text.begin(), end, number);
  return error == std::errc() && last == end && number >= 0;
}

// Cuts off what comes before the mark; false when there is none.
bool cut(std::string_view& text, char mark, std::string_view& before) {
  const std::size_t place = text.find(mark);
  if (place == std::string_view::npos) return false;
  before = text.substr(0, place);
  text.remove_prefix(place + 1);
  return true;
}

// Call names are those without a version suffix; a user may well write one.
std::string_view without_version(std::string_view name) {
  const std::size_t place = name.rfind("_v");
  int version = 0;
  return place != std::string_view::npos && take_number(name.substr(place + 2), version) ? name.substr(0, place) : name;
}

std::string take_where(std::string_view text, PlannedFault& fault) {
  std::string_view rank;
  std::string_view call;
  if (!cut(text, ':', rank) || !cut(text, ':', call)) return std::string(kForm);
  if (rank != "*") {
    int number = 0;
    if (!take_number(rank, number)) return ": RANK is a number from 0, or *";
    fault.rank = number;
  }
  if (call != "*") {
    fault.call = call_named(without_version(call));
    if (fault.call == Call::kCount) return ": no driver call of that name is simulated";
  }
  return take_number(text, fault.k) ? std::string() : ": K is a number from 0";
}

std::string take_action(std::string_view text, PlannedFault& fault) {
  if (text == "kill" || text == "kill-after") {
    fault.action = text == "kill" ? FaultAction::kKill : FaultAction::kKillAfter;
    return {};
  }
  std::string_view word;
  if (std::string_view rest = text; cut(rest, ':', word) && word == "delay") {
    std::uint32_t milliseconds = 0;
    if (!take_number(rest, milliseconds) || milliseconds > 3'600'000) {
      return ": delay takes milliseconds, at most 3600000";
    }
    fault.action = FaultAction::kDelay;
    fault.delay = std::chrono::milliseconds(milliseconds);
    return {};
  }
  int code = 0;
  const bool numeric = take_number(text, code);
  for (const ErrorRow* row = kErrorRows; row->code >= 0; ++row) {
    if (row->code != 0 && (numeric ? row->code == code : text == row->name)) {
      fault.code = static_cast<CUresult>(row->code);
      return {};
    }
  }
  return ": ACTION is an error of cuda.h by name or number, delay:MILLISECONDS, kill, or kill-after";
}

}  // namespace

FaultPlan fault_plan(std::string_view text) {
  FaultPlan plan;
  while (!text.empty()) {
    std::string_view one;
    if (!cut(text, ';', one)) one = std::exchange(text, {});
    if (one.empty()) continue;
    PlannedFault fault{.text = std::string(one)};
    std::string_view rest = one;
    std::string_view where;
    plan.objection = cut(rest, '=', where) ? take_where(where, fault) : std::string(kForm);
    if (plan.objection.empty()) plan.objection = take_action(rest, fault);
    if (!plan.objection.empty()) {
      plan.objection = "fault=" + fault.text + plan.objection;
      return plan;
    }
    plan.faults.push_back(std::move(fault));
  }
  return plan;
}

}  // namespace allranks::sim
