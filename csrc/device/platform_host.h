// The simulated driver's side of platform.h: device code as host code, every access through simcuBlock.
//
// Threads: a Block belongs to one running lane.
#ifndef ALLRANKS_DEVICE_PLATFORM_HOST_H_
#define ALLRANKS_DEVICE_PLATFORM_HOST_H_

#include <cstring>

#include "layout.h"
#include "simcuda/include/simcu.h"

namespace allranks::device {

// Bytes that a lane handles at once: many here, since finding the memory behind an address costs more than a copy.
inline constexpr std::uint32_t kTileBytes = 2048;

class Block {
 public:
  explicit Block(simcuBlock* block) : block_(block) {}

  std::uint32_t index() const { return block_->block_index; }
  std::uint32_t count() const { return block_->block_count; }
  std::uint32_t lane() const { return block_->lane; }
  std::uint32_t lane_count() const { return block_->lane_count; }
  void sync() { block_->sync(block_); }

  template <typename T>
  void load(T* tile, Address from, std::uint32_t count) {
    read(tile, from, count * sizeof(T));
  }
  template <typename T>
  void store(Address to, const T* tile, std::uint32_t count) {
    write(to, tile, count * sizeof(T));
  }

  std::uint64_t load_word(Address word) {
    std::uint64_t value = 0;
    read(&value, word, sizeof value);
    return value;
  }
  void signal(Address word, std::uint64_t value) { block_->store_word(block_, word, value, 8); }
  std::uint64_t spin(Address word, std::uint64_t expected, std::uint64_t timeout_us, const char* what) {
    const auto done = [](std::uint64_t seen, std::uint64_t wanted) { return reached(seen, wanted) ? 1 : 0; };
    block_->spin_until(block_, word, 8, done, expected, timeout_us, what);
    return load_word(word);
  }

  void multimem_load_reduce(void* destination, Address from, MultimemType type, MultimemOperation operation,
                            std::uint32_t element_bytes, std::uint32_t bytes) {
    block_->multimem_load_reduce(block_, from, destination, static_cast<int>(type), static_cast<int>(operation),
                                 static_cast<int>(bytes / element_bytes));
  }
  void multimem_store(Address to, const void* source, std::uint32_t bytes) {
    block_->multimem_store(block_, to, source, bytes);
  }

 private:
  static constexpr std::uint32_t kWindowCount = 8;

  bool covers(const simcuWindow& window, Address address, std::uint64_t size) const {
    return window.generation == *block_->generation && address >= window.begin && address < window.end &&
           size <= window.end - address;
  }

  // The memory behind the range, or null where it is not one stretch. Rights are remembered apart for reads and writes.
  unsigned char* find(simcuWindow* windows, std::uint32_t& next, Address address, std::uint64_t size, bool writing) {
    for (std::uint32_t i = 0; i < kWindowCount; ++i) {
      if (covers(windows[i], address, size)) return windows[i].host + (address - windows[i].begin);
    }
    auto* const host = static_cast<unsigned char*>(block_->translate(block_, address, size, writing ? 1 : 0));
    if (host == nullptr) return nullptr;
    if (covers(block_->window[0], address, size)) {
      windows[next] = block_->window[0];
      next = (next + 1) % kWindowCount;
    }
    return host;
  }

  // Out of line: the kernels are many, and a call is nothing beside a translation.
  [[gnu::noinline]] void read(void* destination, Address from, std::uint64_t size) {
    if (size == 0) return;
    if (const unsigned char* const host = find(readable_, next_readable_, from, size, false)) {
      std::memcpy(destination, host, size);
      return;
    }
    const std::uint64_t half = size / 2;
    read(destination, from, half);
    read(static_cast<unsigned char*>(destination) + half, from + half, size - half);
  }

  [[gnu::noinline]] void write(Address to, const void* source, std::uint64_t size) {
    if (size == 0) return;
    unsigned char* const host = block_->recording != 0 ? nullptr : find(writable_, next_writable_, to, size, true);
    if (host != nullptr) {
      std::memcpy(host, source, size);
    } else {
      block_->store(block_, to, source, size);
    }
  }

  simcuBlock* block_;
  simcuWindow readable_[kWindowCount] = {};
  simcuWindow writable_[kWindowCount] = {};
  std::uint32_t next_readable_ = 0;
  std::uint32_t next_writable_ = 0;
};

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_PLATFORM_HOST_H_
