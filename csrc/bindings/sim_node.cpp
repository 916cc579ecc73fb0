#include "sim_node.hpp"

#include <stdexcept>

namespace allranks::bindings {

namespace {

// Asks a function that fills a C array for all of its elements; most have few.
template <typename Element, typename Fill>
std::vector<Element> all_of(const Fill& fill) {
  std::vector<Element> elements(256);
  std::size_t count = fill(elements.data(), elements.size());
  if (count > elements.size()) {
    elements.resize(count);
    count = fill(elements.data(), elements.size());
  }
  elements.resize(std::min(count, elements.size()));
  return elements;
}

template <typename Element, typename Fill>
py::bytes bytes_of(const Fill& fill) {
  const std::vector<Element> elements = all_of<Element>(fill);
  return py::bytes(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(Element));
}

template <typename Fill>
std::string text_of(const Fill& fill) {
  std::string text(fill(nullptr, 0), '\0');
  fill(text.data(), text.size());
  return text;
}

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::uint32_t choose_in_python(void* state, std::uint64_t decision, std::uint32_t runnable) {
  const py::gil_scoped_acquire gil;
  try {
    return (*static_cast<py::object*>(state))(decision, runnable).cast<std::uint32_t>();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("schedule");
    return 0;
  }
}

}  // namespace

Node::Node(const simcuMachine& machine) : node_(sim_library().NodeCreate(&machine)) {
  if (node_ == nullptr) throw py::value_error(sim_library().LastError());
}

Node::~Node() { close(); }

void Node::close() {
  if (node_ == nullptr) return;
  const py::gil_scoped_release nogil;
  sim_library().NodeDestroy(node_);
  node_ = nullptr;
}

simcuNode Node::handle() const {
  if (node_ == nullptr) throw py::value_error("the node is closed");
  return node_;
}

std::shared_ptr<Process> Node::create_process(int rank, int rule, std::uint64_t base_offset_bytes) {
  handle();
  return std::make_shared<Process>(shared_from_this(), rank, rule, base_offset_bytes);
}

void Node::run_begin(int task_count, const Deviations& schedule) {
  std::vector<simcuDeviation> deviations;
  deviations.reserve(schedule.size());
  for (const auto& [decision, choice] : schedule) deviations.push_back({decision, choice});
  if (sim_library().RunBegin(handle(), task_count, deviations.data(), deviations.size()) != 0) {
    throw py::value_error(sim_library().LastError());
  }
}

void Node::run_begin_asking(int task_count, py::function choose) {
  choose_ = std::move(choose);
  if (sim_library().RunBeginAsking(handle(), task_count, &choose_in_python, &choose_) != 0) {
    throw py::value_error(sim_library().LastError());
  }
}

bool Node::run_wait(double quiet_timeout_s) {
  const simcuNode node = handle();
  const py::gil_scoped_release nogil;
  return sim_library().RunWait(node, static_cast<std::uint64_t>(quiet_timeout_s * 1000.0)) == 0;
}

std::string Node::run_report() const {
  return text_of([&](char* text, std::size_t capacity) { return sim_library().RunReport(handle(), text, capacity); });
}

std::string Node::incidents() const {
  return text_of([&](char* text, std::size_t capacity) { return sim_library().Incidents(handle(), text, capacity); });
}

Deviations Node::deviations() const {
  std::vector<simcuDeviation> all(sim_library().RunDeviations(handle(), nullptr, 0));
  sim_library().RunDeviations(handle(), all.data(), all.size());
  Deviations out;
  out.reserve(all.size());
  for (const simcuDeviation& deviation : all) out.emplace_back(deviation.decision, deviation.choice);
  return out;
}

py::bytes Node::ledger() const {
  return bytes_of<simcuLedgerEntry>([&](simcuLedgerEntry* entries, std::size_t capacity) {
    return sim_library().Ledger(handle(), entries, capacity);
  });
}

py::bytes Node::writes() const {
  return bytes_of<simcuWrite>(
      [&](simcuWrite* writes, std::size_t capacity) { return sim_library().Writes(handle(), writes, capacity); });
}

Process::Process(std::shared_ptr<Node> node, int rank, int rule, std::uint64_t base_offset_bytes)
    : node_(std::move(node)), rank_(rank) {
  const simcuPlacement placement{sizeof(simcuPlacement), rule, base_offset_bytes};
  process_ = sim_library().ProcessCreate(node_->handle(), rank, &placement);
  if (process_ == nullptr) throw py::value_error(sim_library().LastError());
}

void Process::close() {
  if (process_ == nullptr) return;
  // A closed node has ended its processes already.
  bool alive = true;
  try {
    node_->handle();
  } catch (const py::value_error&) {
    alive = false;
  }
  if (alive) sim_library().ProcessDestroy(process_);
  process_ = nullptr;
}

simcuProcess Process::handle() const {
  if (process_ == nullptr) throw py::value_error("the process has ended");
  node_->handle();
  return process_;
}

bool Process::enter(int order) {
  const simcuProcess process = handle();
  const py::gil_scoped_release nogil;
  return sim_library().TaskEnter(process, order) == 0;
}

py::bytes Process::calls(std::size_t first) const {
  return bytes_of<simcuCall>(
      [&](simcuCall* calls, std::size_t capacity) { return sim_library().Calls(handle(), first, calls, capacity); });
}

py::list Process::resolve(std::uint64_t address, std::uint64_t size) const {
  const std::vector<simcuPiece> pieces = all_of<simcuPiece>([&](simcuPiece* found, std::size_t capacity) {
    return sim_library().Resolve(handle(), address, size, found, capacity);
  });
  py::list out;
  for (const simcuPiece& piece : pieces) {
    out.append(py::make_tuple(piece.from_bytes, piece.size_bytes, piece.device, piece.owner_rank, piece.allocation,
                              piece.through_multicast != 0, piece.offset_bytes));
  }
  return out;
}

py::bytes Process::peek(std::uint64_t address, std::uint64_t size) const {
  std::string bytes(size, '\0');
  if (sim_library().Peek(handle(), address, bytes.data(), size) != 0) {
    throw py::value_error("address=" + hex(address) + " size=" + std::to_string(size) +
                          ": not every byte is memory that rank " + std::to_string(rank_) + " reaches");
  }
  return py::bytes(bytes);
}

void Process::poke(std::uint64_t address, const py::buffer& data) {
  const py::buffer_info info = data.request();
  const auto size = static_cast<std::uint64_t>(info.size * info.itemsize);
  if (sim_library().Poke(handle(), address, info.ptr, size) != 0) {
    throw py::value_error("address=" + hex(address) + " size=" + std::to_string(size) +
                          ": not every byte is memory that rank " + std::to_string(rank_) + " reaches");
  }
}

py::array Process::view(std::uint64_t address, std::uint64_t size) const {
  void* const host = sim_library().HostView(handle(), address, size);
  if (host == nullptr) {
    throw py::value_error("address=" + hex(address) + " size=" + std::to_string(size) +
                          ": not one contiguous stretch of one device's memory");
  }
  // The base keeps the node alive as long as the view; the memory itself is the caller's to keep allocated.
  return py::array_t<std::uint8_t>(static_cast<py::ssize_t>(size), static_cast<const std::uint8_t*>(host),
                                   py::cast(node_));
}

void Process::fault(const std::string& call, std::uint64_t k, int code) {
  if (sim_library().Fault(handle(), call.c_str(), k, code) != 0) {
    throw py::value_error("call=" + call + ": no driver call of that name is simulated");
  }
}

}  // namespace allranks::bindings
