#include "broker/serve.hpp"

#include <iterator>

#include "wire/calls.hpp"
#include "wire/remote_calls.hpp"

namespace allranks::sim::broker {

namespace {

template <auto Function>
constexpr Served row(const char* call) {
  if constexpr (wire::RemoteCall<Function>::kCarried) {
    return {call, &wire::RemoteCall<Function>::serve};
  } else {
    return {call, nullptr};  // the client says that it is not supported, and never sends it
  }
}

constexpr Served kServed[] = {
#define ALLRANKS_REMOTE(plain, symbol) row<&plain>(#plain),
#include "wire/remote_calls.inc"
#undef ALLRANKS_REMOTE
};

}  // namespace

Served served(std::uint16_t number) { return number < std::size(kServed) ? kServed[number] : Served{}; }

}  // namespace allranks::sim::broker
