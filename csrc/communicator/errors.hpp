// What can go wrong, split by what the caller can do about it.
//
// UsageError: the caller's own; change the call. DriverError, PeerLost, Timeout, Stalled: the world's. A collective
// step that fails on one rank fails on all of them with an error of the same kind that names that rank.
#ifndef ALLRANKS_COMMUNICATOR_ERRORS_HPP_
#define ALLRANKS_COMMUNICATOR_ERRORS_HPP_

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace allranks {

// The rank of an error that no rank in particular made.
inline constexpr int kNoRank = -1;

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text, int rank = kNoRank) : std::runtime_error(text), rank_(rank) {}
  // The rank on which the failure happened, which is not always the one that raises.
  int rank() const { return rank_; }

 private:
  int rank_;
};

// An argument, option or order of calls that breaks a rule; the text names it and the rule.
class UsageError : public Error {
 public:
  using Error::Error;
};

// A driver call that did not return CUDA_SUCCESS.
class DriverError : public Error {
 public:
  DriverError(std::string call, int code, std::string name, const std::string& text, int rank = kNoRank)
      : Error(text, rank), call_(std::move(call)), code_(code), name_(std::move(name)) {}

  const std::string& call() const { return call_; }
  int code() const { return code_; }
  const std::string& name() const { return name_; }

 private:
  std::string call_;
  int code_;
  std::string name_;
};

// Some ranks are gone, or have given up.
class PeerLost : public Error {
 public:
  PeerLost(const std::string& text, std::vector<int> ranks)
      : Error(text, ranks.empty() ? kNoRank : ranks.front()), ranks_(std::move(ranks)) {}
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
};

// Some ranks did not come before the deadline.
class Timeout : public PeerLost {
 public:
  using PeerLost::PeerLost;
};

// Nothing can ever run again: said by the simulated driver's turnstile, which knows it at once.
class Stalled : public PeerLost {
 public:
  using PeerLost::PeerLost;
};

// "rank 2", "ranks 1, 3".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_ERRORS_HPP_
