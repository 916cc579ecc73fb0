#include "context.hpp"

#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

constexpr std::uint64_t kHandleTag = 0xc700'0000'0000ull;

}  // namespace

Context::Context(Process& owner, int device_index, std::uint64_t serial_number)
    : process(owner), device(device_index), serial(serial_number) {
  clear();
}

void Context::clear() {
  active = false;
  sticky_error = CUDA_SUCCESS;
  peers.clear();
  limits.clear();
  cache = CU_FUNC_CACHE_PREFER_NONE;
  // Threads that wait for a stream may not have seen yet that its work is done.
  if (!node().turnstile.waited_outside()) former_streams.clear();
  if (streams) former_streams.push_back(std::move(streams));
  modules = std::make_unique<ModuleTable>(*this);
  events = std::make_unique<EventTable>(*this);
  streams = std::make_unique<StreamTable>(*this);
}

Context::~Context() = default;

Node& Context::node() const { return process.node(); }

CUcontext Context::handle() const {
  return reinterpret_cast<CUcontext>(kHandleTag | (serial << 12) | (static_cast<std::uint64_t>(device) << 4));
}

}  // namespace allranks::sim
