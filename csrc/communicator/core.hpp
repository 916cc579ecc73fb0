// What everything of one rank's communicator shares: driver, device, peers, scratch memory, kernels, and whether it is
// open, broken or closed.
//
// Not the operations: those are in the classes that hold a Core. Broken means that an error is raised every time from
// then on, on every rank: a rank that breaks leaves the bootstrap, so that no peer waits for it.
//
// Threads: those of the rank, one at a time.
#ifndef ALLRANKS_COMMUNICATOR_CORE_HPP_
#define ALLRANKS_COMMUNICATOR_CORE_HPP_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agreement.hpp"
#include "kernels.hpp"
#include "options.hpp"
#include "scratch.hpp"

namespace allranks {

class Core {
 public:
  // Collective. Throws UsageError, DriverError, PeerLost and its kin; nothing is left then.
  Core(std::shared_ptr<Bootstrap> bootstrap, DriverPointer driver, int device_index, Options options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  int rank() const { return bootstrap_->rank(); }
  int rank_count() const { return bootstrap_->rank_count(); }
  const Options& options() const { return options_; }
  const Driver& driver() const { return *driver_; }
  CUdevice device() const { return device_; }
  Bootstrap& bootstrap() { return *bootstrap_; }
  Agreement& agreement() { return agreement_; }
  Cleanup& cleanup() { return cleanup_; }
  Scratch& scratch() { return scratch_; }
  bool multicast_supported() const { return multicast_supported_; }

  bool closed() const { return closed_; }
  bool broken() const { return broken_; }
  // Throws UsageError when closed, PeerLost when broken.
  void require_usable() const;
  // From now on every operation raises.
  void break_down(const std::string& why, const std::vector<int>& ranks) noexcept;

  // Runs a collective step: work(ordinal). The step's context is current in it, and what the bootstrap throws breaks
  // the communicator.
  template <typename Work>
  auto collective(Work&& work) {
    require_usable();
    const ContextScope scope(*this);
    enter_thread();
    try {
      return work(next_ordinal_++);
    } catch (const PeerLost& error) {
      break_down(error.what(), error.ranks());
      throw;
    }
  }
  // Runs what one rank does alone.
  template <typename Work>
  auto local(Work&& work) {
    require_usable();
    const ContextScope scope(*this);
    enter_thread();
    make_current();
    return work();
  }
  // Makes the communicator's context the current one. Throws DriverError. Only inside collective or local.
  void make_current();

  // The kernel parameter that describes the ranks. The kernel has the next `barriers` barriers, as on all ranks.
  device::Team team(std::uint64_t barriers);
  void advance(std::uint64_t barriers) { epoch_ += barriers; }
  void set_multicast(CUdeviceptr address) { multicast_scratch_ = address; }
  CUdeviceptr multicast_scratch() const { return multicast_scratch_; }
  std::uint32_t block_count() const { return block_count_; }

  // Launches behind everything that this communicator launched before, on whatever stream.
  template <Kernel kernel>
  void launch(const typename KernelArguments<kernel>::Type& arguments, std::uint32_t blocks, CUstream stream) {
    order_behind(stream);
    kernels_.launch<kernel>(arguments, blocks, stream);
    record(stream);
  }
  void prepare(Kernel kernel) { kernels_.prepare(kernel); }
  // Tells the device work of every peer that this rank will not come.
  void fail_peers() noexcept;

  // Waits for the stream. Throws DriverError, and Timeout or PeerLost when device work gave up waiting for a rank.
  void synchronize(CUstream stream);

  // Runs a clean-up that a destructor asks for: at once on the thread that used the communicator last, else by that
  // thread at its next operation, since a garbage collector may destroy an object on any thread.
  void dispose(std::function<void()> clean_up) noexcept;
  void run_disposals() noexcept;
  // Runs a clean-up; throws DriverError if some call of it failed, after all of it.
  template <typename CleanUp>
  void give_back(CleanUp&& clean_up) {
    const std::vector<CleanupFailure> before = cleanup_.take_failures();
    clean_up();
    raise_failures(before);
  }

  // Throws DriverError for the clean-ups that failed since, and keeps `before` for a later report.
  void raise_failures(const std::vector<CleanupFailure>& before);
  // Runs the clean-up of a communicator that is not closed collectively, where driver calls still mean this rank's;
  // elsewhere everything is forgotten.
  void run_last(const std::function<void()>& clean_up) noexcept;
  // Ends this rank's device work and waits, up to the deadline, until no peer's can reach this rank's memory any more.
  void settle_broken() noexcept;

  // Gives back what the Core itself has; operations raise from then on.
  void close() noexcept;
  void leave() noexcept { bootstrap_->leave(); }
  // Forgets everything without driver calls.
  void abandon() noexcept;

 private:
  // Has the caller's current context back at its end; make_current notes which that is. Scopes may nest.
  class ContextScope {
   public:
    explicit ContextScope(Core& core) : core_(core) { ++core.scope_depth_; }
    ~ContextScope() {
      if (--core_.scope_depth_ == 0) core_.restore_context();
    }
    ContextScope(const ContextScope&) = delete;
    ContextScope& operator=(const ContextScope&) = delete;

   private:
    Core& core_;
  };

  void restore_context() noexcept;
  void enter_thread() noexcept;
  void open(int device_index);
  void set_up(int device_index);
  void order_behind(CUstream stream);
  void record(CUstream stream);

  const std::shared_ptr<Bootstrap> bootstrap_;
  const DriverPointer driver_;
  const Options options_;
  Cleanup cleanup_;
  Agreement agreement_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  PrimaryContext retained_;
  Kernels kernels_;
  Event last_work_;
  Scratch scratch_;

  std::thread::id thread_;
  std::mutex disposals_mutex_;
  std::vector<std::function<void()>> disposals_;
  int scope_depth_ = 0;
  bool is_current_ = false;  // within the scopes that are open
  bool was_other_ = false;
  CUcontext previous_context_ = nullptr;
  std::uint64_t next_ordinal_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint32_t block_count_ = 1;
  CUdeviceptr multicast_scratch_ = 0;
  CUstream last_stream_ = nullptr;
  bool launched_ = false;
  bool unchecked_ = false;  // device work since the last look at the report
  bool multicast_supported_ = false;
  bool closed_ = false;
  bool broken_ = false;
  std::string why_broken_;
  std::vector<int> blamed_;
};

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_CORE_HPP_
