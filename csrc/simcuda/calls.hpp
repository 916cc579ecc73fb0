// The driver calls that are simulated, by number and name (calls.def).
#ifndef ALLRANKS_SIMCUDA_CALLS_HPP_
#define ALLRANKS_SIMCUDA_CALLS_HPP_

#include <cstdint>
#include <string_view>

namespace allranks::sim {

// Without the prefix and a version suffix: kMemAlloc is cuMemAlloc in all its versions.
enum class Call : std::uint16_t {
#define ALLRANKS_CALL(name, log) k##name,
#include "calls.def"
#undef ALLRANKS_CALL
  kCount
};

// Null past the last one.
const char* name_of(Call call);
bool is_logged(Call call);
// kCount for a name that is not simulated.
Call call_named(std::string_view name);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_CALLS_HPP_
