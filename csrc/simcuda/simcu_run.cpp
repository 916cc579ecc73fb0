// The turnstile's part of simcu.h: runs, tasks, waiting, labels.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "include/simcu.h"
#include "json_text.hpp"
#include "node.hpp"
#include "process.hpp"
#include "thread_state.hpp"
#include "turnstile.hpp"

namespace allranks::sim {

namespace {

// A list of deviations; everything else goes on.
class ListedSchedule : public Schedule {
 public:
  ListedSchedule(const simcuDeviation* deviations, std::size_t count) : deviations_(deviations, deviations + count) {
    std::sort(deviations_.begin(), deviations_.end(),
              [](const simcuDeviation& a, const simcuDeviation& b) { return a.decision < b.decision; });
  }

  std::uint32_t choose(std::uint64_t decision, std::uint32_t) override {
    while (next_ < deviations_.size() && deviations_[next_].decision < decision) ++next_;
    return next_ < deviations_.size() && deviations_[next_].decision == decision ? deviations_[next_].choice : 0;
  }

 private:
  std::vector<simcuDeviation> deviations_;
  std::size_t next_ = 0;
};

class AskedSchedule : public Schedule {
 public:
  using Choose = std::uint32_t (*)(void*, std::uint64_t, std::uint32_t);
  AskedSchedule(Choose asked, void* state) : choose_(asked), state_(state) {}
  std::uint32_t choose(std::uint64_t decision, std::uint32_t runnable) override {
    return choose_(state_, decision, runnable);
  }

 private:
  Choose choose_;
  void* state_;
};

int begin(simcuNode node, int task_count, std::unique_ptr<Schedule> schedule) {
  if (node_of(node).turnstile.begin_run(task_count, std::move(schedule))) return 0;
  set_last_error(task_count < 1 ? "task_count=" + std::to_string(task_count) + ": a run has at least one task"
                                : std::string("the node has a run in progress already"));
  return 1;
}

std::string report_of(const Turnstile& turnstile) {
  std::string text = std::string("{\"stalled\": ") + (turnstile.stalled() ? "true" : "false") + ", \"moments\": [";
  bool first = true;
  for (const Turnstile::Moment& moment : turnstile.moments()) {
    text += std::string(first ? "" : ", ") + "{\"kind\": " + json_quoted(moment.stall ? "stall" : "deadline") +
            ", \"clock_us\": " + std::to_string(moment.clock_us) +
            ", \"decision\": " + std::to_string(moment.decision) + ", \"waits\": " + moment.waits +
            ", \"others\": " + moment.others + "}";
    first = false;
  }
  return text + "]}";
}

WaitSpec spec_from(const simcuWaitSpec& from) {
  WaitSpec spec{.ready = [&from] { return from.ready(from.state) != 0; },
                .key = from.key,
                .call = interned(from.call),
                .object = from.object == nullptr ? "" : from.object,
                .timeout_us = from.timeout_us};
  if (from.waits_for != nullptr) {
    spec.waits_for = [&from](std::vector<int>& ranks) {
      ranks.resize(1024);
      const std::size_t count = from.waits_for(from.state, ranks.data(), ranks.size());
      ranks.resize(std::min(count, ranks.size()));
    };
  }
  return spec;
}

// The process that the calling thread speaks for, made on demand for threads bound to nothing.
Turnstile& turnstile_of_thread() { return calling_process().node().turnstile; }

}  // namespace

}  // namespace allranks::sim

using allranks::sim::calling_process;
using allranks::sim::node_of;
using allranks::sim::process_of;
using allranks::sim::this_thread;
using allranks::sim::Turnstile;

extern "C" {

int simcuRunBegin(simcuNode node, int task_count, const simcuDeviation* schedule, size_t count) {
  return allranks::sim::begin(node, task_count, std::make_unique<allranks::sim::ListedSchedule>(schedule, count));
}

int simcuRunBeginAsking(simcuNode node, int task_count, uint32_t (*choose)(void*, uint64_t, uint32_t), void* state) {
  return allranks::sim::begin(node, task_count, std::make_unique<allranks::sim::AskedSchedule>(choose, state));
}

int simcuTaskEnter(simcuProcess process, int order) {
  auto& entering = process_of(process);
  this_thread().process = &entering;
  return entering.node().turnstile.enter(&entering, entering.rank, order) ? 0 : 1;
}

void simcuTaskLeave(void) {
  auto& thread = this_thread();
  if (thread.task == nullptr) return;
  Turnstile& turnstile = thread.process->node().turnstile;
  thread.process = nullptr;
  thread.contexts.clear();
  turnstile.leave();
}

int simcuRunWait(simcuNode node, uint64_t quiet_timeout_ms) {
  return node_of(node).turnstile.await_run(quiet_timeout_ms) ? 0 : 1;
}

void simcuBlockingHooks(simcuBeforeBlocking before, simcuAfterBlocking after) {
  allranks::sim::blocking_hooks = {before, after};
}

void simcuYield(void) {
  if (this_thread().task != nullptr) allranks::sim::turnstile_of_thread().decide();
}

uint64_t simcuNow(void) { return allranks::sim::turnstile_of_thread().now_us(); }

int simcuWait(const simcuWaitSpec* spec) {
  auto& process = calling_process();
  if (process.unwound) return SIMCU_WAIT_STALLED;
  Turnstile& turnstile = process.node().turnstile;
  const Turnstile::Turn turn(turnstile);
  return static_cast<int>(turnstile.wait(allranks::sim::spec_from(*spec)));
}

void simcuNotify(const void* key) {
  Turnstile& turnstile = allranks::sim::turnstile_of_thread();
  const Turnstile::Turn turn(turnstile);
  turnstile.notify(key);
}

int simcuRunStalled(simcuNode node) { return node_of(node).turnstile.stalled() ? 1 : 0; }

size_t simcuRunReport(simcuNode node, char* text, size_t capacity) {
  return allranks::sim::copy_text(allranks::sim::report_of(node_of(node).turnstile), text, capacity);
}

size_t simcuRunDeviations(simcuNode node, simcuDeviation* deviations, size_t capacity) {
  const auto& all = node_of(node).turnstile.deviations();
  for (size_t i = 0; i < all.size() && i < capacity; ++i) deviations[i] = {all[i].first, all[i].second};
  return all.size();
}

uint64_t simcuRunDecisions(simcuNode node) { return node_of(node).turnstile.decisions(); }
uint64_t simcuRunVerdictNanoseconds(simcuNode node) { return node_of(node).turnstile.verdict_ns(); }

void simcuLabel(uint32_t step, const char* operation, int owner) {
  this_thread().label = {
      .step = step, .operation = allranks::sim::interned(operation), .owner = static_cast<uint16_t>(owner)};
}

}  // extern "C"
