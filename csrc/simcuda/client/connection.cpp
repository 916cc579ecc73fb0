#include "client/connection.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <vector>

#include "client/config.hpp"
#include "client/host_thread.hpp"
#include "wire/protocol.hpp"

namespace allranks::sim::client {

namespace {

// What the process has of the driver. One object, and never destroyed: cuda.h gives its functions nothing else.
struct State {
  std::mutex mutex;
  bool begun = false;
  std::atomic<bool> forked = false;
  std::atomic<bool> said_lost = false;
  std::optional<NodeAddress> node;
  wire::Hello hello;
  int life_line = -1;
  std::vector<Connection*> connections;
  pthread_key_t key{};
};

State& state() {
  static State& instance = *new State;
  return instance;
}

void before_fork() { state().mutex.lock(); }
void after_fork() { state().mutex.unlock(); }

void in_child() {
  State& own = state();
  own.forked = true;
  if (own.life_line >= 0) close(own.life_line);
  own.life_line = -1;
  for (Connection* connection : own.connections) connection->abandon();
  own.connections.clear();
  own.mutex.unlock();
}

// A socket that is connected to the node's broker, above the numbers of the standard streams; -1: there is none.
int reach(const NodeAddress& node, wire::Hello hello, wire::Purpose purpose) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(node.name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, node.name.data(), length);
  wire::Descriptor any(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  wire::Descriptor own(fcntl(any.get(), F_DUPFD_CLOEXEC, 3));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (connect(own.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return -1;
  hello.purpose = purpose;
  hello.thread = static_cast<std::int32_t>(syscall(SYS_gettid));
  wire::Writer out;
  wire::Reader in;
  std::uint32_t welcome = 0;
  out.put(hello);
  return out.send(own.get()) && in.receive(own.get()) && in.take(welcome) && welcome == 1 ? own.release() : -1;
}

// With the mutex held: the first call of the process, which must not be repeated whatever comes of it.
void begin(State& own) {
  own.begun = true;
  pthread_key_create(&own.key, [](void* connection) { delete static_cast<Connection*>(connection); });
  pthread_atfork(before_fork, after_fork, in_child);
  own.node = node_address();
  if (!own.node) {
    std::fputs("simcuda: this library works in a process that `allranks sim run` has started; no device here\n",
               stderr);
    return;
  }
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  own.hello.secret = own.node->secret;
  own.hello.rank = own.node->rank;
  own.hello.process = static_cast<std::int32_t>(getpid());
  own.hello.image = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
  own.life_line = reach(*own.node, own.hello, wire::Purpose::kLifeLine);
}

}  // namespace

bool forked() { return state().forked; }

Connection::~Connection() {
  const std::lock_guard lock(state().mutex);
  std::erase(state().connections, this);
  if (socket_ >= 0) close(socket_);
}

void Connection::abandon() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

Connection* Connection::of_thread(CUresult& refusal) {
  State& own = state();
  if (own.forked || is_host_thread()) {
    refusal = own.forked ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_NOT_PERMITTED;
    return nullptr;
  }
  static thread_local Connection* known = nullptr;  // may outlive what it points to; the key does not
  if (known != nullptr && pthread_getspecific(own.key) == known) return known;
  const std::lock_guard lock(own.mutex);
  if (!own.begun) begin(own);
  if (!own.node) {
    refusal = CUDA_ERROR_NO_DEVICE;
    return nullptr;
  }
  const int socket = own.life_line < 0 ? -1 : reach(*own.node, own.hello, wire::Purpose::kCalls);
  if (socket < 0) {
    refusal = lost();
    return nullptr;
  }
  known = new Connection(socket);
  own.connections.push_back(known);
  pthread_setspecific(own.key, known);
  return known;
}

CUresult Connection::lost() {
  if (!state().said_lost.exchange(true)) std::fputs("simcuda: the simulated node is gone\n", stderr);
  return CUDA_ERROR_SYSTEM_NOT_READY;
}

Connection* Connection::open(wire::Purpose purpose) {
  State& own = state();
  const std::lock_guard lock(own.mutex);
  const int socket = own.node && own.life_line >= 0 ? reach(*own.node, own.hello, purpose) : -1;
  if (socket < 0) return nullptr;
  own.connections.push_back(new Connection(socket));
  return own.connections.back();
}

bool Connection::ask() {
  wire::Kind kind{};
  return out.send(socket_) && listen(kind) && kind == wire::Kind::kAnswer;
}

bool Connection::say(std::uint32_t word) {
  out.clear();
  out.put(word);
  return out.send(socket_);
}

bool Connection::listen(wire::Kind& kind) {
  while (in.receive(socket_)) {
    if (!in.take(kind)) return false;
    switch (kind) {
      case wire::Kind::kAnswer:
      case wire::Kind::kCallFunction: return true;
      case wire::Kind::kReadMemory:
        if (!give_memory()) return false;
        break;
      case wire::Kind::kWriteMemory:
        if (!set_memory()) return false;
        break;
      case wire::Kind::kUnmapMemory:
        if (!unmap_memory()) return false;
        break;
    }
  }
  return false;
}

// The kernel reads the memory, so that a pointer which leads nowhere is an error and no fault.
bool Connection::give_memory() {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  if (!in.take(address) || !in.take(size) || size > wire::kMemoryPiece) return false;
  std::uint32_t there = 1;
  iovec parts[] = {{&there, sizeof there}, {reinterpret_cast<void*>(address), size}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  ssize_t sent = -1;
  do {
    sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0 || errno != EFAULT) return sent >= 0;
  return say(0);
}

bool Connection::set_memory() {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  if (!in.take(address) || !in.take(size)) return false;
  const bool whole = in.take_bytes(reinterpret_cast<void*>(address), size);
  return say(whole ? 1 : 0);
}

// Pages of cuMemHostAlloc.
bool Connection::unmap_memory() {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  if (!in.take(address) || !in.take(size)) return false;
  const bool gone = munmap(reinterpret_cast<void*>(address), size) == 0;
  return say(gone ? 1 : 0);
}

}  // namespace allranks::sim::client
