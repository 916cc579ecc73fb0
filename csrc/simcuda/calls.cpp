#include "calls.hpp"

namespace allranks::sim {

namespace {

constexpr bool kLogged = true;
constexpr bool kQuiet = false;

struct Row {
  const char* name;
  bool logged;
};

constexpr Row kRows[] = {
#define ALLRANKS_CALL(name, log) {"cu" #name, log},
#include "calls.def"
#undef ALLRANKS_CALL
};

}  // namespace

const char* name_of(Call call) { return call < Call::kCount ? kRows[static_cast<std::uint16_t>(call)].name : nullptr; }

bool is_logged(Call call) { return kRows[static_cast<std::uint16_t>(call)].logged; }

Call call_named(std::string_view name) {
  for (std::uint16_t i = 0; i < static_cast<std::uint16_t>(Call::kCount); ++i) {
    if (name == kRows[i].name) return static_cast<Call>(i);
  }
  return Call::kCount;
}

}  // namespace allranks::sim
