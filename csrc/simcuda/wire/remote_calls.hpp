// The entry points that a client has carried out by the broker, by number. The list is made from the definitions in
// entry/ by make_client.py, so an entry point that is added there is carried over without more ado; shapes.hpp says how
// its arguments travel where their types do not.
#ifndef ALLRANKS_SIMCUDA_WIRE_REMOTE_CALLS_HPP_
#define ALLRANKS_SIMCUDA_WIRE_REMOTE_CALLS_HPP_

#include <cstdint>

namespace allranks::sim::wire {

enum class Remote : std::uint16_t {
#define ALLRANKS_REMOTE(plain, symbol) k##symbol,
#include "wire/remote_calls.inc"
#undef ALLRANKS_REMOTE
  kCount,
  // A call of what is not simulated; its name follows.
  kUnsupported = 0xffff
};

}  // namespace allranks::sim::wire

#endif  // ALLRANKS_SIMCUDA_WIRE_REMOTE_CALLS_HPP_
