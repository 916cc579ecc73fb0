// Copying and reducing stretches of memory, by the lanes of one block. No synchronisation.
#ifndef ALLRANKS_DEVICE_TILES_H_
#define ALLRANKS_DEVICE_TILES_H_

#include "numbers.h"
#include "plan.h"

namespace allranks::device {

ALLRANKS_DEVICE void copy_bytes(Block& block, Address destination, Address source, std::uint64_t bytes) {
  if (destination == source) return;
  std::uint8_t tile[kTileBytes];
  const std::uint64_t step = std::uint64_t{kTileBytes} * block.lane_count();
  for (std::uint64_t at = std::uint64_t{kTileBytes} * block.lane(); at < bytes; at += step) {
    const auto size = static_cast<std::uint32_t>(smaller(kTileBytes, bytes - at));
    block.load(tile, source + at, size);
    block.store(destination + at, tile, size);
  }
}

// The same stretch of several ranks' memory: at(i) is where it begins in the i-th.
struct Stretches {
  const Address* bases;
  std::uint64_t offset;
  std::uint32_t count;
  ALLRANKS_DEVICE Address at(std::uint32_t i) const { return bases[i] + offset; }
};

template <typename W, typename T>
ALLRANKS_DEVICE void combine_tile(Operation operation, W* sum, const T* tile, std::uint32_t size) {
  with_operation(operation, [&](auto which) {
    for (std::uint32_t i = 0; i < size; ++i) {
      sum[i] = combine<decltype(which)::value>(sum[i], Arithmetic<T>::wide(tile[i]));
    }
  });
}

// Combines `count` elements of all sources in their order and stores the result to every destination.
template <typename T>
ALLRANKS_DEVICE void reduce_typed(Block& block, Operation operation, std::uint64_t count, const Stretches& sources,
                                  const Stretches& destinations) {
  using Wide = typename Arithmetic<T>::Wide;
  constexpr std::uint32_t kTile = kTileBytes / sizeof(T);
  T tile[kTile];
  Wide sum[kTile];
  const std::uint64_t step = std::uint64_t{kTile} * block.lane_count();
  for (std::uint64_t at = std::uint64_t{kTile} * block.lane(); at < count; at += step) {
    const auto size = static_cast<std::uint32_t>(smaller(kTile, count - at));
    block.load(tile, sources.at(0) + at * sizeof(T), size);
    if (sources.count > 1) {
      for (std::uint32_t i = 0; i < size; ++i) sum[i] = Arithmetic<T>::wide(tile[i]);
      for (std::uint32_t from = 1; from < sources.count; ++from) {
        block.load(tile, sources.at(from) + at * sizeof(T), size);
        combine_tile(operation, sum, tile, size);
      }
      for (std::uint32_t i = 0; i < size; ++i) tile[i] = Arithmetic<T>::narrow(sum[i]);
    }
    for (std::uint32_t to = 0; to < destinations.count; ++to) {
      block.store(destinations.at(to) + at * sizeof(T), tile, size);
    }
  }
}

ALLRANKS_DEVICE void reduce_elements(Block& block, DataType type, Operation operation, std::uint64_t count,
                                     const Stretches& sources, const Stretches& destinations) {
  with_type(type, [&](auto zero) { reduce_typed<decltype(zero)>(block, operation, count, sources, destinations); });
}

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_TILES_H_
