// A client process as the broker sees it: its virtual process, the threads that call, and what is to be said of it.
//
// A guest outlives its process: what was known at its end is kept for the report.
// Threads: what is marked so needs the turn, the rest has the guest's own mutex; take the turn first.
#ifndef ALLRANKS_SIMCUDA_BROKER_GUEST_HPP_
#define ALLRANKS_SIMCUDA_BROKER_GUEST_HPP_

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "broker/guest_functions.hpp"
#include "broker/guest_memory.hpp"
#include "process.hpp"
#include "thread_state.hpp"

namespace allranks::sim::broker {

// A client's thread: its connection, and the thread of the broker that serves it.
struct Line {
  int socket = -1;
  int thread = 0;  // as the client numbers it
  ThreadState* state = nullptr;
  std::atomic<const char*> call = nullptr;  // the one that is being carried out
};

class Guest {
 public:
  Guest(int rank_name, pid_t process_id, std::uint64_t image_mark)
      : rank(rank_name), pid(process_id), image(image_mark) {}

  const int rank;
  const pid_t pid;
  const std::uint64_t image;

  // With the turn: null once the process has ended.
  Process* process = nullptr;
  std::unique_ptr<GuestMemory> memory;
  std::unique_ptr<GuestFunctions> functions;
  // Set once: threads of the broker that wait on behalf of the guest give up.
  std::atomic<bool> ended = false;
  std::atomic<std::uint64_t> calls = 0;

  // False when the guest has ended: the line is not served.
  bool add(Line& line);
  void remove(Line& line);
  // Hangs up on every thread.
  void hang_up();
  void wait_until_alone();
  // Calls visit(line) for each.
  template <typename Visit>
  void visit_lines(const Visit& visit) {
    const std::lock_guard lock(mutex_);
    for (Line* line : lines_) visit(*line);
  }

  void note_failure(const char* call, CUresult code);
  void note_unsupported(const std::string& name);

  // With the turn. Keeps what is known of the process; to be called before it ends.
  void remember();
  // With the turn. One object of the report's "clients".
  std::string as_json();

 private:
  std::string failures_as_json();
  std::string process_as_json() const;
  std::string waits_as_json();

  std::mutex mutex_;
  std::condition_variable alone_;
  std::set<Line*> lines_;
  std::map<std::pair<std::string, CUresult>, std::uint64_t> failures_;
  std::set<std::string> unsupported_;
  std::string last_words_;
};

}  // namespace allranks::sim::broker

#endif  // ALLRANKS_SIMCUDA_BROKER_GUEST_HPP_
