// What client and broker say to each other besides the calls themselves.
#ifndef ALLRANKS_SIMCUDA_WIRE_PROTOCOL_HPP_
#define ALLRANKS_SIMCUDA_WIRE_PROTOCOL_HPP_

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "remote_calls.hpp"

namespace allranks::sim::wire {

// `SIMCU_NODE`: the broker's socket, "NAME:SECRET"; the name is one of the abstract name space, so there is no file.
// The secret, 32 hexadecimal digits, keeps out who only sees the name. `SIMCU_RANK`: what reports call the process.
inline constexpr const char* kNodeVariable = "SIMCU_NODE";
inline constexpr const char* kRankVariable = "SIMCU_RANK";
inline constexpr std::size_t kSecretLength = 32;
using Secret = std::array<char, kSecretLength>;

// Both sides are the same build: the number of calls and the sizes of what they pass stand for that.
inline constexpr std::uint64_t kProtocol =
    0x414c'4c52'0001'0000ull | (static_cast<std::uint64_t>(Remote::kCount) << 4) | (sizeof(CUmemAllocationProp) & 15u);

// The first connection of a process is its life line: nothing more is said on it, and its hang-up is the process's
// death. Every thread that calls the driver has another one, on which calls and answers alternate. Over one more the
// broker has functions of the client called.
enum class Purpose : std::uint32_t { kLifeLine = 0, kCalls = 1, kHostFunctions = 2 };

struct Hello {
  std::uint64_t protocol = kProtocol;
  Secret secret{};
  Purpose purpose = Purpose::kLifeLine;
  std::int32_t rank = 0;
  std::uint64_t image = 0;   // tells a program from the one that the same process ran before `exec`
  std::int32_t thread = 0;   // its id, for reports
  std::int32_t process = 0;  // as the client sees it, for reports
};

// What a message from the broker is. Before it answers a call it may ask for the client's memory, if the kernel does
// not let it have that, and say what the driver does not need any more.
enum class Kind : std::uint32_t {
  kAnswer = 0,
  kReadMemory = 1,   // address, size; the client sends 1 and the bytes, or 0
  kWriteMemory = 2,  // address, size, bytes; the client sends 1 or 0
  kUnmapMemory = 3,  // address, size; the client sends 1 or 0
  kCallFunction = 4  // a HostFunction, over its own connection; the client sends 1 when it begins, 0 when it has ended
};
inline constexpr std::size_t kMemoryPiece = std::size_t{64} * 1024;

}  // namespace allranks::sim::wire

#endif  // ALLRANKS_SIMCUDA_WIRE_PROTOCOL_HPP_
