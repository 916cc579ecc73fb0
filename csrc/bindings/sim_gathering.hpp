// Where the ranks of a run come together once: those that come early wait, through the turnstile, for those that miss.
//
// Only tasks of a run call it, so only one thread at a time.
#ifndef ALLRANKS_BINDINGS_SIM_GATHERING_HPP_
#define ALLRANKS_BINDINGS_SIM_GATHERING_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace allranks::bindings {

class Gathering {
 public:
  // `object` is what reports call it: "connect #3".
  Gathering(std::vector<int> members, std::string object)
      : members_(std::move(members)), object_(std::move(object)), come_(members_.size(), false) {}
  Gathering(const Gathering&) = delete;
  Gathering& operator=(const Gathering&) = delete;

  // Notes that the rank has come, and waits for the others; a simcuWaitResult. Throws pybind11::value_error for a rank
  // that is no member.
  int arrive(int rank, std::optional<double> timeout_s);
  // The members that have not come, in order.
  std::vector<int> missing() const;

 private:
  static int ask(void* state);
  static std::size_t ask_missing(void* state, int* ranks, std::size_t capacity);

  const std::vector<int> members_;
  const std::string object_;
  std::vector<bool> come_;
  std::size_t count_ = 0;
};

}  // namespace allranks::bindings

#endif  // ALLRANKS_BINDINGS_SIM_GATHERING_HPP_
