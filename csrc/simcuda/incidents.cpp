#include "incidents.hpp"

#include <utility>

#include "json_text.hpp"
#include "process.hpp"

namespace allranks::sim {

void Incidents::add(const Process& process, const Label& label, const char* kind, std::string call, std::string detail,
                    const char* assumption) {
  if (all_.size() == kMost) return;
  all_.push_back({process.serial, process.rank, label, kind, std::move(call), std::move(detail), assumption});
}

void Incidents::add_unsupported(const Process& process, const Label& label, const char* name) {
  if (unsupported_.emplace(process.serial, name).second) add(process, label, "unsupported", name, "not simulated");
}

std::string Incidents::as_json(std::optional<unsigned> of_process) const {
  std::string text = "[";
  for (const Incident& incident : all_) {
    if (of_process && incident.process != *of_process) continue;
    if (text.size() > 1) text += ", ";
    text += "{\"rank\": " + std::to_string(incident.rank) + ", \"step\": " + std::to_string(incident.label.step) +
            ", \"owner\": " + std::to_string(incident.label.owner) + ", \"kind\": " + json_quoted(incident.kind) +
            ", \"call\": " + json_quoted(incident.call) + ", \"detail\": " + json_quoted(incident.detail) +
            ", \"assumption\": " + (incident.assumption == nullptr ? "null" : json_quoted(incident.assumption)) + "}";
  }
  return text + "]";
}

}  // namespace allranks::sim
