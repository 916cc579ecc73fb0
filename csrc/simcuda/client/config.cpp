#include "client/config.hpp"

#include <algorithm>
#include <cstdlib>

namespace allranks::sim::client {

std::optional<NodeAddress> node_address() {
  const char* const node = std::getenv(wire::kNodeVariable);
  const char* const rank = std::getenv(wire::kRankVariable);
  const std::string whole = node == nullptr ? "" : node;
  const std::size_t colon = whole.find(':');
  if (colon == std::string::npos || colon == 0 || whole.size() - colon - 1 != wire::kSecretLength) return std::nullopt;
  NodeAddress found;
  found.name = whole.substr(0, colon);
  std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(colon) + 1, wire::kSecretLength, found.secret.begin());
  found.rank = rank == nullptr ? 0 : static_cast<int>(std::strtol(rank, nullptr, 10));
  return found;
}

}  // namespace allranks::sim::client
