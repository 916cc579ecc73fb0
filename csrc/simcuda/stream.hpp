// Streams of a context: queues of work that fibers carry out in order.
//
// A stream with work pending has one fiber task, its worker; an idle stream costs nothing. The legacy default stream
// synchronises with every blocking stream of its context: work on it waits for what was enqueued before it elsewhere,
// and later work elsewhere waits for it. Work of a rank runs when the rank waits, or when the schedule says so.
//
// Source of the ordering rules: CUDA driver API, "Stream synchronization behavior".
// Threads: with the turn held.
#ifndef ALLRANKS_SIMCUDA_STREAM_HPP_
#define ALLRANKS_SIMCUDA_STREAM_HPP_

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ledger.hpp"
#include "thread_state.hpp"
#include "turnstile.hpp"

namespace allranks::sim {

class StreamTable;

// Smaller numbers come first; measured.
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

class Stream {
 public:
  enum class Kind { kLegacy, kBlocking, kNonBlocking };

  Stream(StreamTable& table, Kind kind, std::string name, Birth birth, int priority = kLeastPriority);

  // Whether work is carried out in a context that is broken.
  enum class When { kIfHealthy, kEvenIfBroken };

  // Appends work; `call` is the driver call that asked for it. The result is the error that the context gets.
  // Returns the number to wait for.
  std::uint64_t enqueue(const char* call, std::function<CUresult()> work, When when = When::kIfHealthy);
  bool idle() const { return completed_ == enqueued_; }
  bool done(std::uint64_t number) const { return completed_ >= number; }
  // Waits until everything enqueued so far is done.
  CUresult synchronize(const char* call);
  CUresult wait_for(std::uint64_t number, const char* call);

  Kind kind() const { return kind_; }
  Context& context() const;
  const std::string& name() const { return name_; }
  const Birth birth;
  const std::uint64_t id;  // unique in the process
  const int priority;

 private:
  friend class StreamTable;
  struct Work {
    Label label;
    const char* call;
    std::uint64_t sequence;
    std::function<CUresult()> run;
    When when;
  };
  void carry_out();
  CUresult carry_out_one(Work& work);
  CUresult await_turn(const Work& work);
  bool turn_has_come(std::uint64_t sequence) const;
  // The sequence number of the oldest work that is not done; UINT64_MAX when idle.
  std::uint64_t oldest() const;

  StreamTable& table_;
  const Kind kind_;
  const std::string name_;
  std::deque<Work> pending_;
  std::uint64_t running_sequence_ = UINT64_MAX;
  std::uint64_t enqueued_ = 0;
  std::uint64_t completed_ = 0;
  bool has_worker_ = false;
};

// The streams and events of one context.
class StreamTable {
 public:
  explicit StreamTable(Context& context);
  ~StreamTable();

  // Null for a handle that is no stream of this context.
  Stream* find(CUstream handle);
  CUstream create(Stream::Kind kind, int priority);
  bool destroy(CUstream handle);
  Stream& legacy() { return legacy_; }

  bool idle() const;
  CUresult synchronize_all(const char* call);
  Context& context() { return context_; }
  const std::map<std::uint64_t, std::unique_ptr<Stream>>& created() const { return created_; }

 private:
  friend class Stream;
  Context& context_;
  Stream legacy_;
  std::map<const ThreadState*, std::unique_ptr<Stream>> per_thread_;
  std::map<std::uint64_t, std::unique_ptr<Stream>> created_;
  std::vector<std::unique_ptr<Stream>> destroyed_;  // while some thread may still look at one
  std::uint64_t& next_handle_;                      // of the process
  std::uint64_t next_sequence_ = 0;
  int ordering_waits_ = 0;
};

// Waits for all work of the process on the device, in all of its contexts, as calls that free or remap memory do.
CUresult synchronize_device(Process& process, int device);
// The same on every device.
CUresult synchronize_process(const Process& process);

// The stream behind a handle of the calling thread's current context, or of any context of the process.
Stream* find_stream(Process& process, CUstream handle);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_STREAM_HPP_
