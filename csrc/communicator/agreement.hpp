// How ranks take every collective step together: the same step with the same arguments, and all or none.
//
// In one round each rank says what step it is in, whether it can take part, and what the others need to know. If any
// rank brings an error, or the steps differ, every rank throws the same error, naming the rank. A rank that throws
// anything before its round brings that error into the round (see `attempt`), so that nobody waits for it in vain.
//
// Threads: those of the rank.
#ifndef ALLRANKS_COMMUNICATOR_AGREEMENT_HPP_
#define ALLRANKS_COMMUNICATOR_AGREEMENT_HPP_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bootstrap.hpp"
#include "errors.hpp"

namespace allranks {

enum class StepKind : std::uint32_t {
  kOpen,
  kConnect,
  kOpenMulticast,
  kBind,
  kUnbind,
  kCloseGroup,
  kAllReduce,
  kAllGather,
  kClose
};

// What has to be equal on all ranks. `phase` counts the rounds of one step.
struct Step {
  StepKind kind = StepKind::kOpen;
  std::uint32_t phase = 0;
  std::uint32_t data_type = 0;
  std::uint32_t operation = 0;
  std::uint64_t count = 0;    // elements, bytes, or the group's number
  std::uint64_t ordinal = 0;  // how many steps this communicator has begun
};
std::string text_of(const Step& step);

// What a rank found before a round: nothing wrong, or an error for all.
using Finding = std::optional<Bytes>;

// Runs the work of one rank; an exception of ours becomes a finding.
Finding encode_error(const std::exception& error);
template <typename Work>
Finding attempt(Work&& work) {
  try {
    work();
    return std::nullopt;
  } catch (const Error& error) {
    return encode_error(error);
  } catch (const std::bad_alloc& error) {
    return encode_error(error);
  }
}

class Agreement {
 public:
  explicit Agreement(std::shared_ptr<Bootstrap> bootstrap) : bootstrap_(std::move(bootstrap)) {}

  // One round. Gives everybody's payload, by rank. Throws the error that some rank brought, UsageError when the steps
  // differ, PeerLost when some ranks are closing and others are not, and what the bootstrap throws.
  std::vector<Bytes> agree(const Step& step, const Finding& finding, const Bytes& payload = {});
  // Throws what a rank has found.
  [[noreturn]] static void rethrow(int rank, const Step& step, const Bytes& finding);

 private:
  const std::shared_ptr<Bootstrap> bootstrap_;
};

// Payloads that are one plain struct.
template <typename T>
Bytes pack(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return Bytes(reinterpret_cast<const char*>(&value), sizeof value);
}
template <typename T>
void append(Bytes& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}
// Reads the next value and moves on. Throws Error when the bytes end before.
class Reader {
 public:
  explicit Reader(const Bytes& bytes) : bytes_(bytes) {}
  template <typename T>
  T next() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    take(&value, sizeof value);
    return value;
  }
  Bytes next_bytes();
  bool done() const { return at_ == bytes_.size(); }

 private:
  void take(void* destination, std::size_t size);
  const Bytes& bytes_;
  std::size_t at_ = 0;
};
void append_bytes(Bytes& bytes, const Bytes& part);

}  // namespace allranks

#endif  // ALLRANKS_COMMUNICATOR_AGREEMENT_HPP_
