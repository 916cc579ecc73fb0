// What hardware tolerates, or leaves undefined, although it is wrong; and sticky errors with their place.
#ifndef ALLRANKS_SIMCUDA_INCIDENTS_HPP_
#define ALLRANKS_SIMCUDA_INCIDENTS_HPP_

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "thread_state.hpp"

namespace allranks::sim {

class Incidents {
 public:
  // `assumption`: the switch that the verdict rests on, if any. Past kMost nothing more is kept.
  void add(const Process& process, const Label& label, const char* kind, std::string call, std::string detail,
           const char* assumption = nullptr);
  // A function or feature that is not simulated, once a name and process.
  void add_unsupported(const Process& process, const Label& label, const char* name);
  // Of all processes, or of the one with that serial number.
  std::string as_json(std::optional<unsigned> of_process = std::nullopt) const;

 private:
  static constexpr std::size_t kMost = 1000;
  struct Incident {
    unsigned process;
    int rank;
    Label label;
    const char* kind;
    std::string call;
    std::string detail;
    const char* assumption;
  };
  std::vector<Incident> all_;
  std::set<std::pair<unsigned, std::string>> unsupported_;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_INCIDENTS_HPP_
