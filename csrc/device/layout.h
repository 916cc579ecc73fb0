// What host and device code, and the ranks among each other, agree on byte by byte: the control page of a rank's
// scratch memory, and the parameters of every kernel.
//
// Scratch memory of a rank: Control, then a staging area for small payloads of the host, then two halves that the
// collectives use in turn (barrier number modulo 2). The whole is mapped by every peer.
#ifndef ALLRANKS_DEVICE_LAYOUT_H_
#define ALLRANKS_DEVICE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "types.h"

namespace allranks::device {

using Address = std::uint64_t;

inline constexpr std::uint32_t kMaxRanks = 72;   // one NVLink domain of the largest kind
inline constexpr std::uint32_t kMaxBlocks = 16;  // of one rank's kernel
inline constexpr std::uint32_t kMaxSlots = 64;   // of the channel cache
inline constexpr std::uint64_t kNoTimeoutUs = UINT64_MAX;

// Set in a word that peers wait on, it says that the rank which owns the word has failed and will not come.
inline constexpr std::uint64_t kFailedWord = 1ull << 63;

// What a kernel says when it gives up; code 0: nothing happened.
struct Report {
  std::uint64_t code;   // ReportCode
  std::uint64_t rank;   // that it waited for
  std::uint64_t phase;  // Phase
  std::uint64_t expected;
  std::uint64_t seen;
};
enum ReportCode : std::uint64_t { kReportNothing = 0, kReportTimeout = 1, kReportPeerFailed = 2 };
enum Phase : std::uint64_t { kPhaseBarrier = 1, kPhaseChannelWait = 2 };

struct Control {
  Report report;                                  // written by the owner's own kernels
  std::uint64_t barrier[kMaxBlocks][kMaxRanks];   // [block][rank that signals]: number of the last barrier it entered
  std::uint64_t semaphore[kMaxSlots][kMaxRanks];  // [cache slot][rank that signals]: entry << 32 | signals so far
};
static_assert(offsetof(Control, report) == 0);
static_assert(offsetof(Control, barrier) == sizeof(Report));
static_assert(offsetof(Control, semaphore) == sizeof(Report) + 8ull * kMaxBlocks * kMaxRanks);

inline constexpr std::uint64_t kControlBytes = 64 * 1024;
inline constexpr std::uint64_t kStagingBytes = 64 * 1024;
inline constexpr std::uint64_t kDataOffset = kControlBytes + kStagingBytes;
static_assert(sizeof(Control) <= kControlBytes);

// Who takes part in a collective, and where everybody's scratch memory is in this rank's address space.
struct Team {
  std::uint32_t rank;
  std::uint32_t rank_count;
  std::uint64_t timeout_us;  // of one wait
  std::uint64_t epoch;       // number of the last barrier before this kernel; equal on all ranks
  std::uint64_t half_bytes;  // of a half of the scratch memory
  Address multicast;         // the scratch memory of all ranks at once; 0: none
  Address scratch[kMaxRanks];
};

struct AllReduceArguments {
  Team team;
  Address send;
  Address receive;
  std::uint64_t count;  // elements
  DataType data_type;
  Operation operation;
};

// Zero-copy: everybody's operands in this rank's address space.
struct DirectAllReduceArguments {
  Team team;
  std::uint64_t count;
  DataType data_type;
  Operation operation;
  Address send[kMaxRanks];
  Address receive[kMaxRanks];
};

struct AllGatherArguments {
  Team team;
  Address send;
  Address receive;
  std::uint64_t bytes;  // of one rank
};

struct DirectAllGatherArguments {
  Team team;
  Address send;
  std::uint64_t bytes;
  Address receive[kMaxRanks];
};

struct CopyArguments {
  Address destination;
  Address source;
  std::uint64_t bytes;
};

struct SignalArguments {
  Address word;
  std::uint64_t value;
};

struct WaitArguments {
  Address word;
  Address report;  // this rank's Control::report
  std::uint64_t expected;
  std::uint64_t timeout_us;
  std::uint64_t peer;
};

struct MulticastStoreArguments {
  Address multicast;  // a multiple of 4
  Address source;
  std::uint64_t bytes;  // a multiple of 4
};

struct MulticastLoadReduceArguments {
  Address destination;
  Address multicast;
  std::uint64_t bytes;
  MultimemType data_type;
  MultimemOperation operation;
  std::uint32_t element_bytes;
};

// The driver takes at most 4 KiB of parameters.
static_assert(sizeof(DirectAllReduceArguments) <= 4096);

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_LAYOUT_H_
