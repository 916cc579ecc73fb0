#include "client/host_thread.hpp"

#include <pthread.h>

#include <csignal>
#include <mutex>

#include "client/connection.hpp"
#include "host_functions.hpp"
#include "wire/protocol.hpp"

namespace allranks::sim::client {

namespace {

thread_local bool host_thread = false;

void* call_functions(void* given) {
  auto& connection = *static_cast<Connection*>(given);
  host_thread = true;
  wire::Kind kind{};
  HostFunction function;
  while (connection.listen(kind) && kind == wire::Kind::kCallFunction && connection.in.take(function)) {
    if (!connection.say(1)) break;  // begun
    function();
    if (!connection.say(0)) break;
  }
  return nullptr;
}

// Without signals: handlers of the program expect none of its threads here.
bool begin(Connection& connection) {
  sigset_t all;
  sigset_t before;
  pthread_t thread{};
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool begun = pthread_create(&thread, nullptr, call_functions, &connection) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (begun) pthread_detach(thread);
  return begun;
}

}  // namespace

bool begin_host_thread() {
  static std::mutex& mutex = *new std::mutex;
  static bool begun = false;
  const std::lock_guard lock(mutex);
  if (begun) return true;
  Connection* const connection = Connection::open(wire::Purpose::kHostFunctions);
  if (connection == nullptr) return false;
  begun = begin(*connection);
  if (!begun) delete connection;
  return begun;
}

bool is_host_thread() { return host_thread; }

}  // namespace allranks::sim::client
