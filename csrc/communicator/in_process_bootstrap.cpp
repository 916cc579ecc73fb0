#include "in_process_bootstrap.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "errors.hpp"

namespace allranks {

namespace {

std::string seconds_text(std::uint64_t timeout_us) {
  std::string text = std::to_string(timeout_us / 1'000'000);
  std::string fraction = std::to_string(timeout_us % 1'000'000 + 1'000'000).substr(1);
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  return (fraction.empty() ? text : text + "." + fraction) + " s";
}

}  // namespace

// What the ranks of one session share. All functions lock; none waits.
class InProcessSession {
 public:
  InProcessSession(int rank_count, std::shared_ptr<Waiter> shared_waiter)
      : waiter(std::move(shared_waiter)),
        rank_count_(rank_count),
        rounds_(static_cast<std::size_t>(rank_count)),
        left_(static_cast<std::size_t>(rank_count)),
        finished_(static_cast<std::size_t>(rank_count)) {
    for (std::vector<Bytes>& half : slots_) half.resize(static_cast<std::size_t>(rank_count));
  }

  const std::shared_ptr<Waiter> waiter;

  // Puts a rank's bytes into its next round; the round's number, and whether it was the last one missing.
  std::pair<std::uint64_t, bool> enter(int rank, const Bytes& bytes) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t round = ++rounds_[static_cast<std::size_t>(rank)];
    slots_[round & 1][static_cast<std::size_t>(rank)] = bytes;
    return {round, complete(round)};
  }
  // Complete, or never to be completed.
  bool settled(std::uint64_t round) {
    const std::lock_guard lock(mutex_);
    return complete(round) || given_up_ || someone_left_before(round);
  }
  bool is_complete(std::uint64_t round) {
    const std::lock_guard lock(mutex_);
    return complete(round);
  }
  std::vector<int> missing(std::uint64_t round) {
    const std::lock_guard lock(mutex_);
    return missing_locked(round);
  }
  const std::vector<Bytes>& slots(std::uint64_t round) const { return slots_[round & 1]; }

  // The first one to give up says why, and whom the others should blame.
  void give_up(const std::string& why, const std::vector<int>& ranks) {
    const std::lock_guard lock(mutex_);
    if (given_up_) return;
    given_up_ = true;
    why_ = why;
    blamed_ = ranks;
  }
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = true;
  }
  void finish(int rank) {
    const std::lock_guard lock(mutex_);
    finished_[static_cast<std::size_t>(rank)] = true;
  }
  std::vector<int> unfinished() {
    const std::lock_guard lock(mutex_);
    std::vector<int> ranks;
    for (int rank = 0; rank < rank_count_; ++rank) {
      if (!finished_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    }
    return ranks;
  }
  // Why the session is over: text and the ranks to blame.
  std::pair<std::string, std::vector<int>> verdict(std::uint64_t round) {
    const std::lock_guard lock(mutex_);
    std::vector<int> gone;
    for (const int rank : missing_locked(round)) {
      if (left_[static_cast<std::size_t>(rank)]) gone.push_back(rank);
    }
    if (!gone.empty()) return {ranks_text(gone) + (gone.size() == 1 ? " has left" : " have left"), gone};
    return {why_, blamed_};
  }
  bool over() {
    const std::lock_guard lock(mutex_);
    return given_up_;
  }

  using Box = std::tuple<int, int, int>;  // from, to, tag
  void post(const Box& box, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    mail_[box].push_back(std::move(bytes));
  }
  bool has_mail_or_never_will(const Box& box) {
    const std::lock_guard lock(mutex_);
    const auto found = mail_.find(box);
    return (found != mail_.end() && !found->second.empty()) || given_up_ ||
           left_[static_cast<std::size_t>(std::get<0>(box))];
  }
  bool take(const Box& box, Bytes& bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = mail_.find(box);
    if (found == mail_.end() || found->second.empty()) return false;
    bytes = std::move(found->second.front());
    found->second.pop_front();
    return true;
  }

 private:
  bool complete(std::uint64_t round) const {
    return std::all_of(rounds_.begin(), rounds_.end(), [&](std::uint64_t entered) { return entered >= round; });
  }
  std::vector<int> missing_locked(std::uint64_t round) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < rank_count_; ++rank) {
      if (rounds_[static_cast<std::size_t>(rank)] < round) ranks.push_back(rank);
    }
    return ranks;
  }
  bool someone_left_before(std::uint64_t round) const {
    for (std::size_t rank = 0; rank < left_.size(); ++rank) {
      if (left_[rank] && rounds_[rank] < round) return true;
    }
    return false;
  }

  const int rank_count_;
  std::mutex mutex_;
  std::array<std::vector<Bytes>, 2> slots_;
  std::vector<std::uint64_t> rounds_;  // last round that each rank has entered
  std::vector<bool> left_;
  std::vector<bool> finished_;  // no device work of it is left
  bool given_up_ = false;
  std::string why_;
  std::vector<int> blamed_;
  std::map<Box, std::deque<Bytes>> mail_;
};

namespace {

class InProcessBootstrap final : public Bootstrap {
 public:
  InProcessBootstrap(int rank, int rank_count, std::shared_ptr<InProcessSession> session)
      : rank_(rank), rank_count_(rank_count), session_(std::move(session)) {}
  ~InProcessBootstrap() override {
    session_->finish(rank_);
    leave();
  }

  int rank() const override { return rank_; }
  int rank_count() const override { return rank_count_; }
  void set_timeout_us(std::uint64_t timeout_us) override { timeout_us_ = timeout_us; }
  std::uint64_t rendezvous_count() const override { return rendezvous_count_; }

  const std::vector<Bytes>& all_gather(const Bytes& mine, const std::string& object) override {
    require_present();
    ++rendezvous_count_;
    const auto [round, last] = session_->enter(rank_, mine);
    if (last) {
      session_->waiter->notify(session_.get());
      return session_->slots(round);
    }
    const std::string what = "bootstrap.all_gather (" + object + ")";
    const WaitOutcome outcome = session_->waiter->wait({.ready = [&, at = round] { return session_->settled(at); },
                                                        .missing = [&, at = round] { return session_->missing(at); },
                                                        .key = session_.get(),
                                                        .call = "bootstrap.all_gather",
                                                        .object = object,
                                                        .timeout_us = timeout_us_});
    if (session_->is_complete(round)) return session_->slots(round);
    const std::vector<int> missing = session_->missing(round);
    if (outcome == WaitOutcome::kReady) {
      const auto [why, ranks] = session_->verdict(round);
      throw PeerLost("rank " + std::to_string(rank_) + ": " + what + ": " + why, ranks);
    }
    give_up(outcome, what, missing);
  }

  void send(int peer, int tag, const Bytes& bytes) override {
    require_present();
    require_peer(peer);
    session_->post({rank_, peer, tag}, bytes);
    session_->waiter->notify(session_.get());
  }

  Bytes receive(int peer, int tag) override {
    require_present();
    require_peer(peer);
    const InProcessSession::Box box{peer, rank_, tag};
    const WaitOutcome outcome = session_->waiter->wait({.ready = [&] { return session_->has_mail_or_never_will(box); },
                                                        .missing = [&] { return std::vector<int>{peer}; },
                                                        .key = session_.get(),
                                                        .call = "bootstrap.receive",
                                                        .object = "tag " + std::to_string(tag),
                                                        .timeout_us = timeout_us_});
    Bytes bytes;
    if (session_->take(box, bytes)) return bytes;
    const std::string what = "bootstrap.receive (tag " + std::to_string(tag) + ")";
    if (outcome == WaitOutcome::kReady) {
      throw PeerLost("rank " + std::to_string(rank_) + ": " + what + ": rank " + std::to_string(peer) + " has left",
                     {peer});
    }
    give_up(outcome, what, {peer});
  }

  void farewell() noexcept override {
    session_->finish(rank_);
    session_->waiter->notify(session_.get());
    session_->waiter->wait({.ready = [&] { return session_->unfinished().empty(); },
                            .missing = [&] { return session_->unfinished(); },
                            .key = session_.get(),
                            .call = "bootstrap.farewell",
                            .object = "close of a broken group",
                            .timeout_us = timeout_us_});
  }

  void leave() noexcept override {
    if (gone_) return;
    gone_ = true;
    session_->leave(rank_);
    session_->waiter->notify(session_.get());
  }

 private:
  void require_present() const {
    if (gone_) throw UsageError("rank " + std::to_string(rank_) + ": the bootstrap is closed");
    if (session_->over()) {
      const auto [why, ranks] = session_->verdict(0);
      throw PeerLost("rank " + std::to_string(rank_) + ": " + why, ranks);
    }
  }
  void require_peer(int peer) const {
    if (peer < 0 || peer >= rank_count_) {
      throw UsageError("peer=" + std::to_string(peer) + ": ranks are 0 to " + std::to_string(rank_count_ - 1));
    }
  }
  [[noreturn]] void give_up(WaitOutcome outcome, const std::string& what, const std::vector<int>& missing) {
    const std::string who = "rank " + std::to_string(rank_);
    session_->give_up(who + " gave up waiting for " + ranks_text(missing), missing);
    if (outcome == WaitOutcome::kStalled) {
      throw Stalled(who + ": " + what + ": nothing can run any more; it waits for " + ranks_text(missing), missing);
    }
    session_->waiter->notify(session_.get());
    throw Timeout(who + ": " + what + ": waited " + seconds_text(timeout_us_) + " for " + ranks_text(missing), missing);
  }

  const int rank_;
  const int rank_count_;
  const std::shared_ptr<InProcessSession> session_;
  std::uint64_t timeout_us_ = kNoTimeout;
  std::uint64_t rendezvous_count_ = 0;
  bool gone_ = false;
};

}  // namespace

InProcessRendezvous::InProcessRendezvous(int rank_count, std::shared_ptr<Waiter> waiter)
    : rank_count_(rank_count), waiter_(std::move(waiter)) {
  if (rank_count < 1) throw UsageError("rank_count=" + std::to_string(rank_count) + ": at least 1");
  taken_.resize(static_cast<std::size_t>(rank_count));
}

std::shared_ptr<Bootstrap> InProcessRendezvous::bootstrap(int rank) {
  if (rank < 0 || rank >= rank_count_) {
    throw UsageError("rank=" + std::to_string(rank) + ": ranks are 0 to " + std::to_string(rank_count_ - 1));
  }
  const std::lock_guard lock(mutex_);
  const std::size_t index = taken_[static_cast<std::size_t>(rank)]++;
  if (index == sessions_.size()) sessions_.push_back(std::make_shared<InProcessSession>(rank_count_, waiter_));
  std::shared_ptr<InProcessSession> session = sessions_[index];
  const bool all = std::all_of(taken_.begin(), taken_.end(), [&](std::size_t taken) { return taken > index; });
  if (all) sessions_[index] = nullptr;
  return std::make_shared<InProcessBootstrap>(rank, rank_count_, std::move(session));
}

}  // namespace allranks
