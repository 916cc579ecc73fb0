// What memory channels and switch channels do on the device. One block each.
#ifndef ALLRANKS_DEVICE_CHANNELS_H_
#define ALLRANKS_DEVICE_CHANNELS_H_

#include "team_barrier.h"
#include "tiles.h"

namespace allranks::device {

ALLRANKS_DEVICE void channel_copy(Block& block, const CopyArguments& a) {
  copy_bytes(block, a.destination, a.source, a.bytes);
}

// Semaphore, the signalling side. Protocol: the word in the peer's control page is set to the number of signals so far.
// Memory order: release at system scope; kernels before it in the stream are seen by who has waited for it.
// Participants: one signaller and one waiter a word. Reuse: numbers grow. Not guaranteed: order between peers.
ALLRANKS_DEVICE void channel_signal(Block& block, const SignalArguments& a) {
  block.sync();
  if (block.lane() == 0) block.signal(a.word, a.value);
}

// Semaphore, the waiting side: acquires. Time-out: a Report in the own control page.
ALLRANKS_DEVICE void channel_wait(Block& block, const WaitArguments& a) {
  if (block.lane() == 0) {
    const std::uint64_t seen = block.spin(a.word, a.expected, a.timeout_us, "channel wait");
    if (failed_word(seen) || !reached(seen, a.expected)) {
      const Report what{failed_word(seen) ? kReportPeerFailed : kReportTimeout, a.peer, kPhaseChannelWait, a.expected,
                        seen};
      write_report(block, a.report, what);
    }
  }
  block.sync();
}

// The largest piece that may start at an address: a power of two up to 16 that divides it and fits.
ALLRANKS_DEVICE std::uint32_t piece_at(Address address, std::uint64_t bytes) {
  std::uint32_t piece = 16;
  while (address % piece != 0 || piece > bytes) piece /= 2;
  return piece;
}

// Calls work(offset, piece) for the pieces of 16 bytes, and smaller ones at the ends; lanes share the 16-byte ones.
template <typename Work>
ALLRANKS_DEVICE void each_piece(Block& block, Address address, std::uint64_t bytes, Work work) {
  const std::uint64_t head = smaller(bytes, (kUnitBytes - address % kUnitBytes) % kUnitBytes);
  const std::uint64_t units = (bytes - head) / kUnitBytes;
  for (std::uint64_t unit = block.lane(); unit < units; unit += block.lane_count()) {
    work(head + unit * kUnitBytes, kUnitBytes);
  }
  if (block.lane() != 0) return;
  for (std::uint64_t at = 0; at < bytes;) {
    if (at == head) at += units * kUnitBytes;
    if (at == bytes) break;
    const std::uint64_t limit = at < head ? head : bytes;
    const std::uint32_t piece = piece_at(address + at, limit - at);
    work(at, piece);
    at += piece;
  }
}

ALLRANKS_DEVICE void multicast_store(Block& block, const MulticastStoreArguments& a) {
  each_piece(block, a.multicast, a.bytes, [&](std::uint64_t at, std::uint32_t piece) {
    alignas(16) unsigned char value[kUnitBytes];
    block.load(value, a.source + at, piece);
    block.multimem_store(a.multicast + at, value, piece);
  });
}

ALLRANKS_DEVICE void multicast_load_reduce(Block& block, const MulticastLoadReduceArguments& a) {
  each_piece(block, a.multicast, a.bytes, [&](std::uint64_t at, std::uint32_t piece) {
    alignas(16) unsigned char value[kUnitBytes];
    block.multimem_load_reduce(value, a.multicast + at, a.data_type, a.operation, a.element_bytes, piece);
    block.store(a.destination + at, value, piece);
  });
}

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_CHANNELS_H_
