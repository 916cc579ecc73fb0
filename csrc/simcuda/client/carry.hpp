// A driver call of the client library: sent to the broker, answered by it.
#ifndef ALLRANKS_SIMCUDA_CLIENT_CARRY_HPP_
#define ALLRANKS_SIMCUDA_CLIENT_CARRY_HPP_

#include <tuple>

#include "client/connection.hpp"
#include "client/host_thread.hpp"
#include "generated.hpp"
#include "wire/calls.hpp"
#include "wire/protocol.hpp"

namespace allranks::sim::client {

template <auto Function, typename... Types>
CUresult carry(wire::Remote number, const char* name, Types... arguments) {
  using Call = wire::RemoteCall<Function>;
  if constexpr (!Call::kCarried) {
    return static_cast<CUresult>(not_supported_call(name));
  } else {
    CUresult result = CUDA_SUCCESS;
    Connection* const connection = Connection::of_thread(result);
    if (connection == nullptr) return result;
    if constexpr (Call::kCallsBack) {
      if (!begin_host_thread()) return CUDA_ERROR_OPERATING_SYSTEM;
    }
    const typename Call::Arguments all{arguments...};
    connection->out.clear();
    connection->out.put(number);
    if (!Call::put(connection->out, all)) return CUDA_ERROR_INVALID_VALUE;
    if (!connection->ask() || !connection->in.take(result)) return Connection::lost();
    // What can be missing from an answer is a descriptor, because this process may open no more of them, or everything,
    // because the broker had no memory for it.
    if (!Call::take_back(connection->in, all) && result == CUDA_SUCCESS) return CUDA_ERROR_OPERATING_SYSTEM;
    return result;
  }
}

}  // namespace allranks::sim::client

#endif  // ALLRANKS_SIMCUDA_CLIENT_CARRY_HPP_
