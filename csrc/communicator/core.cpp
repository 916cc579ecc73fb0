#include "core.hpp"

#include <algorithm>

#include "errors.hpp"
#include "semaphore.hpp"

namespace allranks {

namespace {

constexpr std::uint32_t kGpuBlocks = 16;
constexpr std::uint64_t kSmallestScratchBytes = 1ull << 20;

// Options that have to be equal; hashed into the opening step.
std::uint64_t fingerprint(const Options& options) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const std::uint64_t value :
       {options.scratch_bytes, std::uint64_t{options.block_count}, options.multicast_threshold_bytes,
        std::uint64_t{options.zero_copy ? 1u : 0u}, std::uint64_t{options.cache_capacity}}) {
    hash = (hash ^ value) * 1099511628211ull;
  }
  return hash;
}

void check(const Options& options, int rank_count) {
  if (rank_count > static_cast<int>(device::kMaxRanks)) {
    throw UsageError("rank_count=" + std::to_string(rank_count) + ": at most " + std::to_string(device::kMaxRanks));
  }
  if (options.scratch_bytes < kSmallestScratchBytes) {
    throw UsageError("scratch_bytes=" + std::to_string(options.scratch_bytes) + ": at least " +
                     std::to_string(kSmallestScratchBytes));
  }
  if (options.block_count > device::kMaxBlocks) {
    throw UsageError("block_count=" + std::to_string(options.block_count) + ": at most " +
                     std::to_string(device::kMaxBlocks));
  }
  if (options.cache_capacity < 1 || options.cache_capacity > device::kMaxSlots) {
    throw UsageError("cache_capacity=" + std::to_string(options.cache_capacity) + ": from 1 to " +
                     std::to_string(device::kMaxSlots));
  }
}

}  // namespace

Core::Core(std::shared_ptr<Bootstrap> bootstrap, DriverPointer driver, int device_index, Options options)
    : bootstrap_(std::move(bootstrap)),
      driver_(std::move(driver)),
      options_(std::move(options)),
      cleanup_(driver_, options_.policies.release),
      agreement_(bootstrap_) {
  bootstrap_->set_timeout_us(options_.timeout_us);
  const ContextScope scope(*this);
  enter_thread();
  try {
    open(device_index);
  } catch (...) {
    close();
    leave();
    throw;
  }
}

void Core::set_up(int device_index) {
  check(options_, rank_count());
  block_count_ = options_.block_count != 0 ? options_.block_count : driver_->simulated() ? 1 : kGpuBlocks;
  driver_->cuInit(0);
  driver_->cuDeviceGet(&device_, device_index);
  multicast_supported_ = driver_->multicast_supported(device_);
  driver_->cuDevicePrimaryCtxRetain(&context_, device_);
  retained_ = PrimaryContext(cleanup_, device_);
  make_current();
  kernels_ = Kernels(cleanup_);
  CUevent event = nullptr;
  driver_->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  last_work_ = Event(cleanup_, event);
  scratch_ = Scratch(cleanup_, device_, options_.scratch_bytes, block_count_);
}

void Core::open(int device_index) {
  Step step{.kind = StepKind::kOpen, .count = fingerprint(options_), .ordinal = next_ordinal_++};
  ExportedMemory exported;
  Bytes payload;
  const Finding set_up_finding = attempt([&] {
    set_up(device_index);
    exported = scratch_.export_memory(cleanup_);
    append(payload, static_cast<std::uint32_t>(multicast_supported_ ? 1 : 0));
    append_bytes(payload, exported.description);
  });
  const std::vector<Bytes> payloads = agreement_.agree(step, set_up_finding, payload);
  step.phase = 1;
  const Finding import_finding = attempt([&] {
    std::vector<Bytes> descriptions;
    for (const Bytes& theirs : payloads) {
      Reader reader(theirs);
      multicast_supported_ = reader.next<std::uint32_t>() != 0 && multicast_supported_;
      descriptions.push_back(reader.next_bytes());
    }
    scratch_.import_peers(cleanup_, device_, rank(), descriptions);
  });
  agreement_.agree(step, import_finding);
}

Core::~Core() {
  if (!closed_) run_last([this] { close(); });
}

// A late destruction may come on a thread that speaks for another virtual process, or for none.
void Core::run_last(const std::function<void()>& clean_up) noexcept {
  CUcontext current = nullptr;
  const bool here = thread_ == std::this_thread::get_id() && driver_->cuCtxGetCurrent.raw(&current) == CUDA_SUCCESS;
  if (!here && driver_->simulated()) {
    abandon();
    return;
  }
  const ContextScope scope(*this);
  attempt([&] { make_current(); });
  run_disposals();
  clean_up();
  leave();
}

void Core::enter_thread() noexcept {
  thread_ = std::this_thread::get_id();
  run_disposals();
}

void Core::dispose(std::function<void()> clean_up) noexcept {
  if (closed_) return;
  if (thread_ == std::this_thread::get_id()) {
    const ContextScope scope(*this);
    attempt([&] { make_current(); });
    clean_up();
    return;
  }
  const std::lock_guard lock(disposals_mutex_);
  disposals_.push_back(std::move(clean_up));
}

void Core::run_disposals() noexcept {
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(disposals_mutex_);
    waiting.swap(disposals_);
  }
  for (const std::function<void()>& clean_up : waiting) clean_up();
}

void Core::raise_failures(const std::vector<CleanupFailure>& before) {
  const std::vector<CleanupFailure> failures = cleanup_.take_failures();
  for (const CleanupFailure& failure : before) cleanup_.record(failure.call, failure.code);
  if (failures.empty()) return;
  const std::string name = driver_->error_name(failures.front().code);
  std::string text = "while giving back: " + failures.front().call + " returned " + name;
  if (failures.size() > 1) text += ", and " + std::to_string(failures.size() - 1) + " more calls failed";
  throw DriverError(failures.front().call, static_cast<int>(failures.front().code), name, text);
}

void Core::require_usable() const {
  if (closed_) throw UsageError("rank " + std::to_string(rank()) + ": the communicator is closed", rank());
  if (broken_)
    throw PeerLost("rank " + std::to_string(rank()) + ": the communicator is broken: " + why_broken_, blamed_);
}

void Core::break_down(const std::string& why, const std::vector<int>& ranks) noexcept {
  if (broken_) return;
  broken_ = true;
  why_broken_ = why;
  blamed_ = ranks;
  bootstrap_->leave();
}

void Core::restore_context() noexcept {
  if (was_other_) driver_->cuCtxSetCurrent.raw(previous_context_);
  is_current_ = false;
  was_other_ = false;
}

void Core::make_current() {
  if (is_current_) return;
  CUcontext current = nullptr;
  driver_->cuCtxGetCurrent(&current);
  if (current != context_) {
    driver_->cuCtxSetCurrent(context_);
    previous_context_ = current;
    was_other_ = true;
  }
  is_current_ = true;
}

device::Team Core::team(std::uint64_t barriers) {
  device::Team team{};
  team.rank = static_cast<std::uint32_t>(rank());
  team.rank_count = static_cast<std::uint32_t>(rank_count());
  team.timeout_us = options_.timeout_us;
  team.epoch = epoch_;
  team.half_bytes = scratch_.half_bytes();
  team.multicast = multicast_scratch_;
  for (int peer = 0; peer < rank_count(); ++peer) team.scratch[peer] = scratch_.peer(peer);
  epoch_ += barriers;
  return team;
}

void Core::order_behind(CUstream stream) {
  if (launched_ && stream != last_stream_) driver_->cuStreamWaitEvent(stream, last_work_.get(), 0);
}

void Core::record(CUstream stream) {
  launched_ = true;
  unchecked_ = true;
  last_stream_ = stream;
  driver_->cuEventRecord(last_work_.get(), stream);
}

void Core::fail_peers() noexcept {
  if (!scratch_.ready()) return;
  const std::uint64_t failed = device::kFailedWord;
  const auto own = static_cast<std::uint64_t>(rank());
  for (int peer = 0; peer < rank_count(); ++peer) {
    if (peer == rank()) continue;
    const CUdeviceptr control = scratch_.peer(peer);
    // Best effort: peers have their own deadline.
    for (std::uint64_t block = 0; block < block_count_; ++block) {
      const std::uint64_t word = offsetof(device::Control, barrier) + 8 * (block * device::kMaxRanks + own);
      driver_->cuMemcpyHtoD.raw(control + word, &failed, sizeof failed);
    }
    for (std::uint32_t slot = 0; slot < device::kMaxSlots; ++slot) {
      if (!scratch_.slot_cleared(slot)) continue;
      driver_->cuMemcpyHtoD.raw(semaphore_word(control, slot, rank()), &failed, sizeof failed);
    }
  }
}

void Core::settle_broken() noexcept {
  const ContextScope scope(*this);
  if (attempt([&] { make_current(); })) return;
  driver_->cuCtxSynchronize.raw();
  bootstrap_->farewell();
}

void Core::synchronize(CUstream stream) {
  // A copy from the device waits for the default stream by itself, and each wait of a rank has its price.
  if (stream != nullptr || !unchecked_) driver_->cuStreamSynchronize(stream);
  if (!unchecked_) return;
  device::Report report{};
  driver_->cuMemcpyDtoH(&report, scratch_.report(), sizeof report);
  unchecked_ = false;
  if (report.code == device::kReportNothing) return;
  const auto peer = static_cast<int>(report.rank);
  const std::string where = report.phase == device::kPhaseBarrier ? "a barrier of device work" : "a channel's wait";
  std::string text = "rank " + std::to_string(rank()) + ": " + where + " gave up on rank " + std::to_string(peer) +
                     " (expected " + std::to_string(report.expected) + ", seen " +
                     std::to_string(report.seen & ~device::kFailedWord) + ")";
  const bool failed = report.code == device::kReportPeerFailed;
  if (failed) text += ": that rank failed to enqueue its part";
  fail_peers();
  break_down(text, {peer});
  if (failed) throw PeerLost(text, {peer});
  throw Timeout(text, {peer});
}

void Core::close() noexcept {
  if (closed_) return;
  closed_ = true;
  scratch_.reset();
  last_work_.reset();
  kernels_.reset();
  retained_.reset();
}

void Core::abandon() noexcept {
  cleanup_.abandon();
  closed_ = true;
  bootstrap_->leave();
}

}  // namespace allranks
