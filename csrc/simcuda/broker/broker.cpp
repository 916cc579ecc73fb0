#include "broker/broker.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "broker/serve.hpp"
#include "entry.hpp"
#include "json_text.hpp"

namespace allranks::sim::broker {

namespace {

constexpr time_t kFirstMessageLimitS = 10;
constexpr int kBacklog = 1024;

// As many hexadecimal digits as asked for, that nobody can guess.
std::string random_digits(std::size_t count) {
  std::vector<unsigned char> bytes(count);
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw std::system_error(errno, std::generic_category(), "getrandom");
  }
  std::string digits;
  for (const unsigned char byte : bytes) digits += "0123456789abcdef"[byte % 16];
  return digits;
}

wire::Descriptor listen_at(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  wire::Descriptor listening(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (listening.get() < 0 || bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(listening.get(), kBacklog) != 0) {
    throw std::system_error(errno, std::generic_category(), "a socket for clients");
  }
  return listening;
}

void limit_receiving(int socket, time_t seconds) {
  const timeval limit{seconds, 0};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

// Who is at the other end; a pid of 0 is one that this process cannot see.
bool is_ours(int socket, pid_t& pid) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  pid = peer.pid;
  return peer.uid == geteuid();
}

}  // namespace

Broker::Broker(const simcuMachine& machine, const simcuBrokerOptions& options) : node_(machine), options_(options) {
  if (options.faults != nullptr) node_.plan_faults(fault_plan(options.faults).faults);
  const std::string name = "allranks-" + random_digits(24);
  const std::string secret = random_digits(wire::kSecretLength);
  std::copy(secret.begin(), secret.end(), secret_.begin());
  address_ = name + ":" + secret;
  listening_ = listen_at(name);
  accepting_ = std::thread([this] { accept_all(); });
  carrying_ = std::thread([this] { carry_out_work(); });
}

Broker::~Broker() { stop(); }

void Broker::stop() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    shutdown(listening_.get(), SHUT_RDWR);
    for (const int socket : connections_) shutdown(socket, SHUT_RDWR);
    quiet_.wait(lock, [&] { return connections_.empty(); });
  }
  if (accepting_.joinable()) accepting_.join();
  {
    const Turnstile::Turn turn(node_.turnstile);
    done_ = true;
    node_.turnstile.wake_outside();
  }
  if (carrying_.joinable()) carrying_.join();
}

void Broker::carry_out_work() {
  const Turnstile::Turn turn(node_.turnstile);
  node_.turnstile.carry_out_until([this] { return done_.load(); });
}

void Broker::accept_all() {
  for (;;) {
    wire::Descriptor socket(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (socket.get() < 0) {
      // Out of descriptors, or the client has gone already: those who come later may fare better.
      if (errno != EINTR && errno != ECONNABORTED) poll(nullptr, 0, 10);
      continue;
    }
    const int number = socket.get();
    connections_.insert(number);
    try {
      std::thread([this, number, owned = std::move(socket)]() mutable {
        attend(number);
        const std::lock_guard done(mutex_);
        connections_.erase(number);  // before the number can be another connection's
        owned.reset();               // whoever waits for quiet finds no socket left
        if (connections_.empty()) quiet_.notify_all();
      }).detach();
    } catch (const std::system_error&) {
      connections_.erase(number);
    }
  }
}

void Broker::attend(int own) {
  pid_t pid = 0;
  wire::Hello hello;
  wire::Reader in;
  limit_receiving(own, kFirstMessageLimitS);
  const bool welcome = is_ours(own, pid) && in.receive(own) && in.take(hello) && hello.protocol == wire::kProtocol &&
                       hello.secret == secret_;
  if (!welcome) {
    ++refused_;
  } else {
    limit_receiving(own, 0);
    switch (hello.purpose) {
      case wire::Purpose::kLifeLine: attend_life_line(hello, pid, own); break;
      case wire::Purpose::kCalls: attend_calls(hello, pid, own); break;
      case wire::Purpose::kHostFunctions: attend_functions(hello, pid, own); break;
    }
  }
}

void Broker::attend_life_line(const wire::Hello& hello, pid_t pid, int socket) {
  const std::shared_ptr<Guest> guest = begin(hello, pid);
  wire::Writer out;
  out.put(std::uint32_t{1});
  out.send(socket);
  // Nothing comes here but the end. The process may have given copies of the connection away; it itself cannot.
  std::array<pollfd, 2> ends{{{socket, POLLIN, 0}, {guest->memory->process_descriptor(), POLLIN, 0}}};
  while (poll(ends.data(), ends.size(), -1) < 0 && errno == EINTR) {
  }
  end(*guest);
}

void Broker::attend_calls(const wire::Hello& hello, pid_t pid, int socket) {
  const std::shared_ptr<Guest> guest = guest_with(pid, hello.image);
  if (!guest) {
    ++refused_;
    return;
  }
  Line line{.socket = socket, .thread = hello.thread, .state = &this_thread()};
  if (!guest->add(line)) return;
  wire::Writer out;
  out.put(std::uint32_t{1});
  if (out.send(line.socket)) serve(*guest, line);
  guest->remove(line);
  this_thread() = ThreadState{};  // not before nobody looks at it any more
}

void Broker::attend_functions(const wire::Hello& hello, pid_t pid, int socket) {
  const std::shared_ptr<Guest> guest = guest_with(pid, hello.image);
  if (!guest) {
    ++refused_;
    return;
  }
  wire::Writer out;
  out.put(std::uint32_t{1});
  if (out.send(socket)) guest->functions->serve(socket);
}

std::shared_ptr<Guest> Broker::begin(const wire::Hello& hello, pid_t pid) {
  auto guest = std::make_shared<Guest>(hello.rank, pid, hello.image);
  wire::Descriptor process(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
  guest->memory =
      std::make_unique<GuestMemory>(pid, std::move(process), options_.host_memory == SIMCU_BROKER_MEMORY_BY_SOCKET);
  guest->functions = std::make_unique<GuestFunctions>(node_.turnstile, *guest->memory, progress_);
  const Turnstile::Turn turn(node_.turnstile);
  guest->process = &node_.create_process(hello.rank, {sizeof(simcuPlacement), SIMCU_PLACE_LOW, 0});
  guest->process->host = guest->memory.get();
  guest->process->host_functions = guest->functions.get();
  guest->process->records_machine_code = true;
  guest->process->keeps_log = false;
  guest->process->pid = pid > 0 ? pid : -1;
  const std::lock_guard lock(mutex_);
  guests_.push_back(guest);
  ++progress_;
  return guest;
}

// What the process has is given back once no thread of ours is at work for it any more.
void Broker::end(Guest& guest) {
  guest.ended = true;
  guest.hang_up();
  guest.functions->end();
  {
    const Turnstile::Turn turn(node_.turnstile);
    node_.turnstile.wake_outside();
  }
  guest.wait_until_alone();
  const Turnstile::Turn turn(node_.turnstile);
  guest.remember();
  node_.end_process_among_others(*guest.process);
  guest.process = nullptr;
  node_.turnstile.notify_all();
  ++progress_;
}

std::shared_ptr<Guest> Broker::guest_with(pid_t pid, std::uint64_t image) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(guests_.rbegin(), guests_.rend(), [&](const std::shared_ptr<Guest>& guest) {
    return guest->pid == pid && guest->image == image;
  });
  return found == guests_.rend() ? nullptr : *found;
}

std::vector<std::shared_ptr<Guest>> Broker::guests() {
  const std::lock_guard lock(mutex_);
  return guests_;
}

void Broker::serve(Guest& guest, Line& line) {
  ThreadState& thread = this_thread();
  thread.process = guest.process;
  thread.abandoned = &guest.ended;
  const GuestMemory::Serving serving(*guest.memory, line.socket);
  wire::Reader in;
  wire::Writer out;
  while (in.receive(line.socket) && serve_one(guest, line, in, out) && out.send(line.socket)) {
    ++progress_;
  }
}

bool Broker::serve_one(Guest& guest, Line& line, wire::Reader& in, wire::Writer& out) {
  std::uint16_t number = 0;
  if (!in.take(number)) return false;
  const auto unsupported = static_cast<std::uint16_t>(wire::Remote::kUnsupported);
  const Served what = number == unsupported ? Served{} : served(number);
  if (what.serve == nullptr && number != unsupported) return false;
  ++guest.calls;
  ++progress_;
  line.call = what.call == nullptr ? "" : what.call;
  out.clear();
  out.put(wire::Kind::kAnswer);
  CUresult result = CUDA_SUCCESS;
  bool understood = true;
  try {
    if (what.serve == nullptr) {
      result = note_unsupported(guest, in);
      out.put(result);
    } else {
      understood = what.serve(in, out, result);
      // A call that was given up, because its process is gone, has not failed.
      if (result != CUDA_SUCCESS && !guest.ended && !guest.process->killed) guest.note_failure(what.call, result);
    }
    guest.memory->deliver(line.socket);
  } catch (const std::exception&) {  // no memory for what the arguments ask for
    result = CUDA_ERROR_OUT_OF_MEMORY;
    guest.note_failure(what.call, result);
    out.clear();
    out.put(wire::Kind::kAnswer);
    out.put(result);
  }
  line.call = nullptr;
  return understood;
}

CUresult Broker::note_unsupported(Guest& guest, wire::Reader& in) {
  std::string name;
  if (!in.take_text(name)) return CUDA_ERROR_NOT_SUPPORTED;
  guest.note_unsupported(name);
  const Turnstile::Turn turn(node_.turnstile);
  node_.incidents.add_unsupported(*guest.process, this_thread().label, name.c_str());
  return CUDA_ERROR_NOT_SUPPORTED;
}

bool Broker::at_rest() {
  const std::vector<std::shared_ptr<Guest>> all = guests();
  const Turnstile::Turn turn(node_.turnstile);
  bool rest = !node_.turnstile.has_work();
  for (const std::shared_ptr<Guest>& guest : all) {
    if (guest->functions->has_more()) rest = false;
    guest->visit_lines([&](const Line& line) {
      if (line.call == nullptr) return;
      const WaitSpec* const waiting = line.state->waiting;
      if (waiting == nullptr || waiting->timeout_us != kNoTimeout) rest = false;
    });
  }
  return rest;
}

std::string Broker::faults_as_json() const {
  std::string text = "[";
  for (std::size_t i = 0; i < node_.faults_met.size(); ++i) {
    text += (i == 0 ? "" : ", ") + ("{\"fault\": " + json_quoted(node_.planned_faults()[i].text)) +
            ", \"met\": " + (node_.faults_met[i] ? "true" : "false") + "}";
  }
  return text + "]";
}

std::string Broker::report() {
  const std::vector<std::shared_ptr<Guest>> all = guests();
  const Turnstile::Turn turn(node_.turnstile);
  std::string clients = "[";
  for (const std::shared_ptr<Guest>& guest : all) clients += (clients.size() > 1 ? ", " : "") + guest->as_json();
  std::uint64_t memory = 0;
  std::uint64_t multicast = 0;
  for (int device = 0; device < node_.machine.device_count; ++device) {
    memory += node_.memory_used(device);
    multicast += node_.multicast_used[static_cast<std::size_t>(device)];
  }
  const std::string broken = node_.check_invariants();
  return "{\"clients\": " + clients + "], \"used\": {\"memory_bytes\": " + std::to_string(memory) +
         ", \"multicast_bytes\": " + std::to_string(multicast) + "}, \"refused\": " + std::to_string(refused_.load()) +
         ", \"faults\": " + faults_as_json() + ", \"broken\": " + (broken.empty() ? "null" : json_quoted(broken)) + "}";
}

}  // namespace allranks::sim::broker
