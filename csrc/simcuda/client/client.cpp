// What the client library has besides the calls that it carries: its mark, and what it says of what is not simulated.
#include <cuda.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_set>

#include "client/connection.hpp"
#include "generated.hpp"
#include "include/simcu.h"
#include "wire/protocol.hpp"

namespace allranks::sim {

namespace {

// Once a name.
void say_unsupported(const char* name) {
  static std::mutex& mutex = *new std::mutex;
  static std::unordered_set<std::string>& said = *new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  if (said.insert(name).second) std::fprintf(stderr, "simcuda: %s is not simulated: CUDA_ERROR_NOT_SUPPORTED\n", name);
}

}  // namespace

int not_supported(const char* name) {
  say_unsupported(name);
  CUresult result = CUDA_SUCCESS;
  client::Connection* const connection = client::Connection::of_thread(result);
  if (connection == nullptr) return result;
  connection->out.clear();
  connection->out.put(wire::Remote::kUnsupported);
  connection->out.put_text(name);
  if (!connection->ask() || !connection->in.take(result)) return client::Connection::lost();
  return result;
}

int not_supported_call(const char* name) { return client::forked() ? CUDA_ERROR_NOT_INITIALIZED : not_supported(name); }

}  // namespace allranks::sim

extern "C" {

unsigned simcuVersion(void) { return 1; }

int simcuUnsupported(const char* name) { return allranks::sim::not_supported_call(name); }

}  // extern "C"
