// What the client library takes from the environment; nothing else in it reads variables.
#ifndef ALLRANKS_SIMCUDA_CLIENT_CONFIG_HPP_
#define ALLRANKS_SIMCUDA_CLIENT_CONFIG_HPP_

#include <optional>
#include <string>

#include "wire/protocol.hpp"

namespace allranks::sim::client {

struct NodeAddress {
  std::string name;  // in the abstract name space, without the leading zero
  wire::Secret secret{};
  int rank = 0;
};

// Nothing when the environment names no node, or not in the form that protocol.hpp says.
std::optional<NodeAddress> node_address();

}  // namespace allranks::sim::client

#endif  // ALLRANKS_SIMCUDA_CLIENT_CONFIG_HPP_
