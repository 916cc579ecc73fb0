// Python's Node and Process: owners of the simulated driver's handles.
//
// A Process keeps its Node alive. Not thread-safe beyond what simcu.h says; the GIL is released wherever a call may
// give the turn away.
#ifndef ALLRANKS_BINDINGS_SIM_NODE_HPP_
#define ALLRANKS_BINDINGS_SIM_NODE_HPP_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim_library.hpp"

namespace allranks::bindings {

namespace py = pybind11;

using Deviations = std::vector<std::pair<std::uint64_t, std::uint32_t>>;

class Process;

class Node : public std::enable_shared_from_this<Node> {
 public:
  explicit Node(const simcuMachine& machine);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  std::shared_ptr<Process> create_process(int rank, int rule, std::uint64_t base_offset_bytes);
  void run_begin(int task_count, const Deviations& schedule);
  void run_begin_asking(int task_count, py::function choose);
  bool run_wait(double quiet_timeout_s);
  std::string run_report() const;
  Deviations deviations() const;
  py::bytes ledger() const;
  py::bytes writes() const;
  std::string incidents() const;
  void close();

  simcuNode handle() const;

 private:
  simcuNode node_ = nullptr;
  py::object choose_;
};

// Ends when it is closed, or with its node: not when Python drops its last reference, for a thread may be bound to it.
class Process {
 public:
  Process(std::shared_ptr<Node> node, int rank, int rule, std::uint64_t base_offset_bytes);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int rank() const { return rank_; }
  bool enter(int order);
  py::bytes calls(std::size_t first) const;
  py::list resolve(std::uint64_t address, std::uint64_t size) const;
  py::bytes peek(std::uint64_t address, std::uint64_t size) const;
  void poke(std::uint64_t address, const py::buffer& data);
  py::array view(std::uint64_t address, std::uint64_t size) const;
  void fault(const std::string& call, std::uint64_t k, int code);
  void close();

  simcuProcess handle() const;

 private:
  std::shared_ptr<Node> node_;
  simcuProcess process_ = nullptr;
  int rank_;
};

}  // namespace allranks::bindings

#endif  // ALLRANKS_BINDINGS_SIM_NODE_HPP_
