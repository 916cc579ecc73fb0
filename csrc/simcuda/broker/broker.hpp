// The broker: a node, a socket that clients come to, and a thread for each of their connections.
//
// A connection's hang-up is what ends things: that of a thread frees the thread that served it; that of a life line
// ends the virtual process and gives everything back that it had. Calls are carried out outside of any run, one at a
// time, by the same entry points that an embedded driver has. Nobody is trusted to be alive: no lock is shared with a
// client.
//
// Threads: any. The turn is taken before a mutex of this class or of a guest.
#ifndef ALLRANKS_SIMCUDA_BROKER_BROKER_HPP_
#define ALLRANKS_SIMCUDA_BROKER_BROKER_HPP_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "broker/guest.hpp"
#include "include/simcu_broker.h"
#include "node.hpp"
#include "wire/message.hpp"
#include "wire/protocol.hpp"

namespace allranks::sim::broker {

class Broker {
 public:
  // Throws std::system_error when there are no sockets.
  Broker(const simcuMachine& machine, const simcuBrokerOptions& options);
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  const std::string& address() const { return address_; }
  std::uint64_t progress() const { return progress_; }
  bool at_rest();
  std::string report();
  void stop();

 private:
  void accept_all();
  // Work on streams goes on while its process does something else, as a device would.
  void carry_out_work();
  // One connection, from its first message to its end.
  void attend(int socket);
  void attend_life_line(const wire::Hello& hello, pid_t pid, int socket);
  void attend_calls(const wire::Hello& hello, pid_t pid, int socket);
  void attend_functions(const wire::Hello& hello, pid_t pid, int socket);
  void serve(Guest& guest, Line& line);
  bool serve_one(Guest& guest, Line& line, wire::Reader& in, wire::Writer& out);
  CUresult note_unsupported(Guest& guest, wire::Reader& in);
  void kill_at(const Guest& guest, std::uint64_t call, bool after);

  std::shared_ptr<Guest> begin(const wire::Hello& hello, pid_t pid);
  void end(Guest& guest);
  std::shared_ptr<Guest> guest_with(pid_t pid, std::uint64_t image);
  std::vector<std::shared_ptr<Guest>> guests();

  Node node_;
  const simcuBrokerOptions options_;
  wire::Secret secret_{};
  std::string address_;
  wire::Descriptor listening_;
  std::thread accepting_;
  std::thread carrying_;
  std::atomic<bool> done_ = false;

  std::atomic<std::uint64_t> progress_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
  std::atomic<bool> killed_ = false;

  std::mutex mutex_;
  std::condition_variable quiet_;
  bool stopping_ = false;
  std::set<int> connections_;  // sockets of the threads that attend
  std::vector<std::shared_ptr<Guest>> guests_;
};

}  // namespace allranks::sim::broker

#endif  // ALLRANKS_SIMCUDA_BROKER_BROKER_HPP_
