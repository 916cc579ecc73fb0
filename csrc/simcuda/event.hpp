// Events: marks in a stream that can be waited for and timed.
//
// Threads: with the turn held. Source: CUDA driver API, "Event Management".
#ifndef ALLRANKS_SIMCUDA_EVENT_HPP_
#define ALLRANKS_SIMCUDA_EVENT_HPP_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ledger.hpp"
#include "stream.hpp"

namespace allranks::sim {

struct Event {
  std::string name;
  bool timed = true;
  bool interprocess = false;
  std::uint32_t serial = 0;     // of an interprocess one, unique in the node
  std::uint64_t recorded = 0;   // how often it was recorded
  std::uint64_t completed = 0;  // which of these records the device has passed
  std::uint64_t time_us = 0;    // when it passed the last one

  bool done() const { return completed >= recorded; }
};

class EventTable {
 public:
  explicit EventTable(Context& context);

  // An event in this table: made here, or another process's and opened here.
  struct Held {
    std::shared_ptr<Event> event;
    Birth birth;
    bool opened = false;
  };

  CUevent create(bool timed, bool interprocess);
  CUevent open(std::shared_ptr<Event> event);
  std::shared_ptr<Event> find(CUevent handle) const;
  bool destroy(CUevent handle);
  const std::map<std::uint64_t, Held>& all() const { return events_; }

  static void record(const std::shared_ptr<Event>& event, Stream& stream, Turnstile& turnstile);
  static void wait_in(const std::shared_ptr<Event>& event, Stream& stream, Turnstile& turnstile);
  static CUresult synchronize(Event& event, Turnstile& turnstile);

 private:
  CUevent add(Held held);

  Context& context_;
  std::map<std::uint64_t, Held> events_;
  std::uint64_t& next_handle_;  // of the process
};

std::shared_ptr<Event> find_event(Process& process, CUevent handle);
// The same with how the process came to it; null for what is no event.
const EventTable::Held* find_held_event(Process& process, CUevent handle);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_EVENT_HPP_
