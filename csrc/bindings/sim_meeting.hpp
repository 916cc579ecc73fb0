// Where the tasks of a run meet: those that come early wait, through the turnstile, for those that miss.
//
// Ranks that meet for different purposes do not meet each other: each purpose counts its rounds by itself, as messages
// with tags do. Only tasks of a run call it, so only one thread at a time, with Python's lock.
#ifndef ALLRANKS_BINDINGS_SIM_MEETING_HPP_
#define ALLRANKS_BINDINGS_SIM_MEETING_HPP_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim_library.hpp"

namespace allranks::bindings {

namespace py = pybind11;

// How an exchange failed: a simcuWaitResult, the members that did not come, and which round of its purpose it was.
struct Missing {
  int result;
  std::vector<int> ranks;
  std::uint32_t round;
};

class Meeting {
 public:
  explicit Meeting(int rank_count);
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // The run is over: whoever comes from now on waits for nobody and finds everybody missing.
  void end() { over_ = true; }

  // A list of what each member brought, in the order of members (None: every rank), or a Missing.
  // Throws pybind11::value_error for a rank that is no member.
  py::object exchange(int rank, py::object value, const std::string& what, std::optional<double> timeout_s,
                      const py::object& members);
  // Every rank brings a callable; the last to come calls them all, in the order of ranks, before anybody goes on.
  // What the own one gave, or raised, or a Missing.
  py::object look(int rank, py::object action, const std::string& what);

 private:
  struct Round {
    std::string object;  // what reports call it: "connect #3"
    const std::vector<int>* members;
    std::vector<py::object> values;  // null: has not come
    std::vector<bool> raised;
    std::size_t come = 0;
    std::size_t taken = 0;
    bool done = false;  // all have come, and what the last one had to do first is done

    std::vector<int> missing() const;
  };
  struct Purpose {
    std::vector<int> members;
    std::vector<std::uint32_t> next;  // round, by member
    std::map<std::uint32_t, Round> rounds;
  };
  struct Place {
    Purpose* purpose;
    std::uint32_t number;
    std::size_t index;
    Round* round;
  };

  static int ask(void* state);
  static std::size_t ask_missing(void* state, int* ranks, std::size_t capacity);

  Purpose& purpose_of(const std::string& what, const py::object& members);
  // Notes that the rank has come; waits, unless it is the last one.
  Place arrive(int rank, py::object value, const std::string& what, const py::object& members);
  int await(Round& round, std::optional<double> timeout_s);
  static void leave(const Place& place);
  py::object nobody_comes(int rank, const py::object& members) const;

  const std::vector<int> everyone_;
  bool over_ = false;
  std::unordered_map<std::string, Purpose> purposes_;
};

}  // namespace allranks::bindings

#endif  // ALLRANKS_BINDINGS_SIM_MEETING_HPP_
