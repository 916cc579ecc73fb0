#include "stream.hpp"

#include <algorithm>
#include <utility>

#include "context.hpp"
#include "node.hpp"
#include "process.hpp"

namespace allranks::sim {

namespace {

// Stream handles are numbers: a tag, the device of the context, an ordinal.
constexpr std::uint64_t kHandleTag = 0x5700'0000'0000ull;

}  // namespace

Stream::Stream(StreamTable& table, Kind kind, std::string name, Birth stream_birth, int stream_priority)
    : birth(stream_birth),
      id(table.context().process.next_stream_id++),
      priority(stream_priority),
      table_(table),
      kind_(kind),
      name_(std::move(name)) {}

Context& Stream::context() const { return table_.context(); }

std::uint64_t Stream::oldest() const {
  if (running_sequence_ != UINT64_MAX) return running_sequence_;
  return pending_.empty() ? UINT64_MAX : pending_.front().sequence;
}

std::uint64_t Stream::enqueue(const char* call, std::function<CUresult()> work, When when) {
  Context& context = table_.context();
  pending_.push_back({this_thread().label, call, table_.next_sequence_++, std::move(work), when});
  ++enqueued_;
  if (!has_worker_) {
    has_worker_ = true;
    context.node().turnstile.spawn("rank " + std::to_string(context.process.rank) + " " + name_, &context.process,
                                   this_thread().label, [this] { carry_out(); });
  }
  return enqueued_;
}

bool Stream::turn_has_come(std::uint64_t sequence) const {
  if (kind_ == Kind::kNonBlocking) return true;
  const auto is_later = [&](const Stream& other) { return other.oldest() > sequence; };
  if (kind_ == Kind::kBlocking) return is_later(table_.legacy_);
  const auto blocks = [&](const Stream& other) { return other.kind_ == Kind::kBlocking && !is_later(other); };
  for (const auto& [handle, stream] : table_.created_) {
    if (blocks(*stream)) return false;
  }
  for (const auto& [thread, stream] : table_.per_thread_) {
    if (blocks(*stream)) return false;
  }
  return true;
}

CUresult Stream::await_turn(const Work& work) {
  if (turn_has_come(work.sequence)) return CUDA_SUCCESS;
  ++table_.ordering_waits_;
  const WaitSpec spec{.ready = [&] { return turn_has_come(work.sequence); },
                      .key = &table_,
                      .call = work.call,
                      .object = name_ + ", ordered by the legacy default stream"};
  const WaitResult result = table_.context().node().turnstile.wait(spec);
  --table_.ordering_waits_;
  return result == WaitResult::kReady ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
}

CUresult Stream::carry_out_one(Work& work) {
  CUresult broken = await_turn(work);
  if (broken == CUDA_SUCCESS) broken = table_.context().sticky_error;
  if (broken == CUDA_SUCCESS) return work.run();
  if (work.when == When::kEvenIfBroken) work.run();
  return broken;
}

void Stream::carry_out() {
  Context& context = table_.context();
  Turnstile& turnstile = context.node().turnstile;
  while (!pending_.empty()) {
    Work work = std::move(pending_.front());
    pending_.pop_front();
    running_sequence_ = work.sequence;
    const CUresult result = carry_out_one(work);
    if (result != CUDA_SUCCESS && context.sticky_error == CUDA_SUCCESS) context.sticky_error = result;
    running_sequence_ = UINT64_MAX;
    ++completed_;
    turnstile.notify(this);
    if (table_.ordering_waits_ > 0) turnstile.notify(&table_);
  }
  has_worker_ = false;
}

CUresult Stream::synchronize(const char* call) { return wait_for(enqueued_, call); }

CUresult Stream::wait_for(std::uint64_t number, const char* call) {
  Context& context = table_.context();
  const WaitSpec spec{.ready = [&] { return done(number); }, .key = this, .call = call, .object = name_};
  if (context.node().turnstile.wait(spec) != WaitResult::kReady) return CUDA_ERROR_LAUNCH_TIMEOUT;
  return context.sticky_error;
}

StreamTable::StreamTable(Context& context)
    : context_(context),
      legacy_(*this, Stream::Kind::kLegacy, "default stream", Birth{}),
      next_handle_(context.process.next_object) {}

StreamTable::~StreamTable() = default;

Stream* StreamTable::find(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return &legacy_;
  if (handle == CU_STREAM_PER_THREAD) {
    std::unique_ptr<Stream>& stream = per_thread_[&this_thread()];
    if (!stream) {
      stream = std::make_unique<Stream>(*this, Stream::Kind::kBlocking, "per-thread default stream", Birth{});
    }
    return stream.get();
  }
  const auto found = created_.find(reinterpret_cast<std::uint64_t>(handle));
  return found == created_.end() ? nullptr : found->second.get();
}

CUstream StreamTable::create(Stream::Kind kind, int priority) {
  const Birth birth = context_.process.birth(LedgerKind::kStream);
  const std::uint64_t handle = kHandleTag | (static_cast<std::uint64_t>(context_.device) << 32) | (next_handle_++ << 4);
  created_.emplace(handle,
                   std::make_unique<Stream>(*this, kind, "stream " + std::to_string(birth.ordinal), birth, priority));
  return reinterpret_cast<CUstream>(handle);
}

// Like the driver, destroying a stream lets its work finish; here it is finished at once. Another thread that waits for
// the stream may not have seen that yet, so the object stays until nobody waits.
bool StreamTable::destroy(CUstream handle) {
  const auto found = created_.find(reinterpret_cast<std::uint64_t>(handle));
  if (found == created_.end()) return false;
  found->second->synchronize("cuStreamDestroy");
  // Other threads went on meanwhile; and a stream whose work cannot end goes with its context.
  const auto still = created_.find(reinterpret_cast<std::uint64_t>(handle));
  if (still == created_.end() || !still->second->idle()) return true;
  if (!context_.node().turnstile.waited_outside()) destroyed_.clear();
  destroyed_.push_back(std::move(still->second));
  created_.erase(still);
  return true;
}

bool StreamTable::idle() const {
  const auto all_idle = [](const auto& streams) {
    return std::all_of(streams.begin(), streams.end(), [](const auto& entry) { return entry.second->idle(); });
  };
  return legacy_.idle() && all_idle(created_) && all_idle(per_thread_);
}

CUresult StreamTable::synchronize_all(const char* call) {
  const auto synchronize = [&](Stream& stream) { return stream.idle() ? CUDA_SUCCESS : stream.synchronize(call); };
  CUresult result = synchronize(legacy_);
  // Work of a broken context ends too; only after a stall there is nothing left to wait for. Other threads may make and
  // destroy streams meanwhile, so each next one is looked up.
  for (auto next = created_.begin(); next != created_.end() && result != CUDA_ERROR_LAUNCH_TIMEOUT;) {
    const std::uint64_t handle = next->first;
    result = synchronize(*next->second);
    next = created_.upper_bound(handle);
  }
  for (auto next = per_thread_.begin(); next != per_thread_.end() && result != CUDA_ERROR_LAUNCH_TIMEOUT;) {
    const ThreadState* const thread = next->first;
    result = synchronize(*next->second);
    next = per_thread_.upper_bound(thread);
  }
  return result != CUDA_SUCCESS ? result : context_.sticky_error;
}

CUresult synchronize_device(Process& process, int device) {
  CUresult result = CUDA_SUCCESS;
  for (const Context* context : process.contexts()) {
    if (context->device != device || result != CUDA_SUCCESS) continue;
    result = context->streams->synchronize_all("cuCtxSynchronize");
  }
  return result;
}

CUresult synchronize_process(const Process& process) {
  CUresult result = CUDA_SUCCESS;
  for (const Context* context : process.contexts()) {
    if (result == CUDA_SUCCESS) result = context->streams->synchronize_all("cuCtxSynchronize");
  }
  return result;
}

Stream* find_stream(Process& process, CUstream handle) {
  Context* const current = process.current_context();
  if (current != nullptr) {
    if (Stream* const stream = current->streams->find(handle)) return stream;
  }
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return nullptr;
  for (Context* context : process.contexts()) {
    if (Stream* const stream = context->streams->find(handle)) return stream;
  }
  return nullptr;
}

}  // namespace allranks::sim
