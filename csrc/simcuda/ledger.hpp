// Who made what when: every live object carries its Birth, and the ledger is read off the live objects themselves.
// Also the log of writes to device memory.
//
// There is no second book: what is not alive is not listed, what is listed is alive.
#ifndef ALLRANKS_SIMCUDA_LEDGER_HPP_
#define ALLRANKS_SIMCUDA_LEDGER_HPP_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "calls.hpp"
#include "include/simcu.h"

namespace allranks::sim {

class Node;
class Process;
struct Stretch;

enum class LedgerKind : std::int32_t {
  kAllocation = SIMCU_LEDGER_ALLOCATION,
  kPlain = SIMCU_LEDGER_PLAIN,
  kReservation = SIMCU_LEDGER_RESERVATION,
  kMapping = SIMCU_LEDGER_MAPPING,
  kMulticast = SIMCU_LEDGER_MULTICAST,
  kBinding = SIMCU_LEDGER_BINDING,
  kDescriptor = SIMCU_LEDGER_DESCRIPTOR,
  kStream = SIMCU_LEDGER_STREAM,
  kEvent = SIMCU_LEDGER_EVENT,
  kModule = SIMCU_LEDGER_MODULE,
  kContext = SIMCU_LEDGER_CONTEXT,
  kHost = SIMCU_LEDGER_HOST,
  kPool = SIMCU_LEDGER_POOL,
  kImported = SIMCU_LEDGER_IMPORTED
};
inline constexpr std::size_t kLedgerKindCount = 14;

// The call that made an object, and the label it was made under.
struct Birth {
  std::uint32_t ordinal = 0;  // among that kind in its process
  std::uint32_t step = 0;
  Call call = Call::kNone;
  std::uint16_t owner = 0;
};

// Everything alive, ordered by (rank, kind, ordinal).
std::vector<simcuLedgerEntry> ledger_of(Node& node);
// The same of one process, with the turn held.
std::vector<simcuLedgerEntry> ledger_of(const Process& process);
// How many entries that of a node has.
std::size_t ledger_size(Node& node);

// Writes to device memory in order; neighbouring ones of one writer in one step are one entry.
class WriteLog {
 public:
  bool recording() const { return recording_; }
  void record_from_now(bool on) { recording_ = on; }
  void record(std::uint32_t step, int rank, const Stretch& stretch, std::uint64_t size);
  const std::vector<simcuWrite>& entries() const { return entries_; }
  void clear() { entries_.clear(); }

 private:
  bool recording_ = false;
  std::vector<simcuWrite> entries_;
};

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_LEDGER_HPP_
