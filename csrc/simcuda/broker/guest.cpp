#include "broker/guest.hpp"

#include <sys/socket.h>

#include <vector>

#include "calls.hpp"
#include "json_text.hpp"
#include "ledger.hpp"
#include "node.hpp"
#include "turnstile.hpp"

namespace allranks::sim::broker {

namespace {

// Codes that say how things are: the program asked, or need not have.
bool is_answer(CUresult code) {
  return code == CUDA_ERROR_NOT_READY || code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ||
         code == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

void append(std::string& list, const std::string& entry) {
  if (list.size() > 1) list += ", ";
  list += entry;
}

std::string names_as_json(const std::set<std::string>& names) {
  std::string list = "[";
  for (const std::string& name : names) append(list, json_quoted(name));
  return list + "]";
}

std::string wait_as_json(int thread, const WaitSpec& waiting) {
  std::vector<int> ranks;
  if (waiting.waits_for) waiting.waits_for(ranks);
  const std::set<int> once(ranks.begin(), ranks.end());
  std::string list = "[";
  for (const int rank : once) append(list, std::to_string(rank));
  return "{\"thread\": " + std::to_string(thread) + ", \"call\": " + json_quoted(waiting.call) +
         ", \"object\": " + json_quoted(waiting.object) + ", \"waits_for\": " + list + "]}";
}

constexpr const char* kKinds[] = {"allocation", "plain", "reservation", "mapping", "multicast", "binding", "descriptor",
                                  "stream",     "event", "module",      "context", "host",      "pool",    "imported"};
static_assert(std::size(kKinds) == kLedgerKindCount);

std::string entry_as_json(const simcuLedgerEntry& entry) {
  const char* const call = name_of(static_cast<Call>(entry.call));
  return "{\"kind\": " + json_quoted(kKinds[entry.kind]) + ", \"ordinal\": " + std::to_string(entry.ordinal) +
         ", \"call\": " + json_quoted(call == nullptr ? "" : call) +
         ", \"references\": " + std::to_string(entry.references) + ", \"device\": " + std::to_string(entry.device) +
         ", \"bytes\": " + std::to_string(entry.bytes) + "}";
}

}  // namespace

bool Guest::add(Line& line) {
  const std::lock_guard lock(mutex_);
  if (ended) return false;
  lines_.insert(&line);
  return true;
}

void Guest::remove(Line& line) {
  const std::lock_guard lock(mutex_);
  lines_.erase(&line);
  if (lines_.empty()) alone_.notify_all();
}

void Guest::hang_up() {
  visit_lines([](const Line& line) { shutdown(line.socket, SHUT_RDWR); });
}

void Guest::wait_until_alone() {
  std::unique_lock lock(mutex_);
  alone_.wait(lock, [&] { return lines_.empty(); });
}

void Guest::note_failure(const char* call, CUresult code) {
  const std::lock_guard lock(mutex_);
  ++failures_[{call, code}];
}

void Guest::note_unsupported(const std::string& name) {
  const std::lock_guard lock(mutex_);
  unsupported_.insert(name);
}

void Guest::remember() { last_words_ = process_as_json(); }

std::string Guest::failures_as_json() {
  const std::lock_guard lock(mutex_);
  std::string list = "[";
  for (const auto& [failed, count] : failures_) {
    const Call call = call_named(failed.first);
    const bool query = call != Call::kCount && !is_logged(call);
    append(list, "{\"call\": " + json_quoted(failed.first) + ", \"code\": " + std::to_string(failed.second) +
                     ", \"count\": " + std::to_string(count) + ", \"query\": " + (query ? "true" : "false") +
                     ", \"answer\": " + (is_answer(failed.second) ? "true" : "false") + "}");
  }
  return list + "], \"unsupported\": " + names_as_json(unsupported_);
}

std::string Guest::process_as_json() const {
  std::string ledger = "[";
  for (const simcuLedgerEntry& entry : ledger_of(*process)) append(ledger, entry_as_json(entry));
  std::string kernels = "{";
  for (const auto& [name, launches] : process->recorded_launches) {
    append(kernels, json_quoted(name) + ": " + std::to_string(launches));
  }
  return "\"ledger\": " + ledger + "], \"kernels\": " + kernels +
         "}, \"incidents\": " + process->node().incidents.as_json(process->serial);
}

// Threads that wait in a call, and work on streams that waits for something itself.
std::string Guest::waits_as_json() {
  std::string list = "[";
  visit_lines([&](const Line& line) {
    if (line.state != nullptr && line.state->waiting != nullptr) {
      append(list, wait_as_json(line.thread, *line.state->waiting));
    }
  });
  if (process != nullptr) {
    for (const Task* task : process->node().turnstile.waiting_fibers()) {
      if (task->process == process) append(list, wait_as_json(0, *task->waiting));
    }
  }
  return list + "]";
}

std::string Guest::as_json() {
  return "{\"rank\": " + std::to_string(rank) + ", \"pid\": " + std::to_string(pid) +
         ", \"alive\": " + (process != nullptr ? "true" : "false") + ", \"calls\": " + std::to_string(calls.load()) +
         ", \"failed\": " + failures_as_json() + ", " + (process != nullptr ? process_as_json() : last_words_) +
         ", \"waits\": " + waits_as_json() + "}";
}

}  // namespace allranks::sim::broker
