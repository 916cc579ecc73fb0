// Carries out the calls that come over a connection, by the entry points of this library.
#ifndef ALLRANKS_SIMCUDA_BROKER_SERVE_HPP_
#define ALLRANKS_SIMCUDA_BROKER_SERVE_HPP_

#include <cuda.h>

#include <cstdint>
#include <string>

#include "wire/message.hpp"

namespace allranks::sim::broker {

struct Served {
  const char* call = nullptr;  // null: no call with that number
  // False: the message is no such call.
  bool (*serve)(wire::Reader& in, wire::Writer& out, CUresult& result) = nullptr;
};

Served served(std::uint16_t number);

}  // namespace allranks::sim::broker

#endif  // ALLRANKS_SIMCUDA_BROKER_SERVE_HPP_
