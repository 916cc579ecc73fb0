// How a collective's work is cut up: by block, and into rounds that fit a half of the scratch memory. Pure functions
// that host and device share, so that both count the same barriers.
#ifndef ALLRANKS_DEVICE_PLAN_H_
#define ALLRANKS_DEVICE_PLAN_H_

#include "layout.h"

#if defined(__CUDACC__)
#define ALLRANKS_BOTH __host__ __device__ inline
#else
#define ALLRANKS_BOTH inline
#endif

namespace allranks::device {

inline constexpr std::uint64_t kUnitBytes = 16;  // stripes and parts begin at multiples of this

ALLRANKS_BOTH std::uint64_t smaller(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }
ALLRANKS_BOTH std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) { return (value + by - 1) / by; }

// Elements [begin, end).
struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

// Part `index` of `parts` of [0, count); all but the last are multiples of `unit`.
ALLRANKS_BOTH Range part_of(std::uint64_t count, std::uint64_t index, std::uint64_t parts, std::uint64_t unit) {
  const std::uint64_t size = divide_up(divide_up(count, parts), unit) * unit;
  const std::uint64_t begin = smaller(count, index * size);
  return Range{begin, smaller(count, begin + size)};
}

// Every block works on its own part of the elements, with its own stripe of each rank's scratch half. All blocks do
// the same number of rounds, also those whose part is shorter: a block that skipped a barrier could overwrite what a
// peer still reads.
struct Plan {
  std::uint64_t stripe;        // elements of a block in one round
  std::uint64_t stripe_bytes;  // distance between the stripes of two blocks
  std::uint64_t rounds;
};

// `capacity_bytes`: what one rank has of a half for this kernel.
ALLRANKS_BOTH Plan make_plan(std::uint64_t count, std::uint64_t element_bytes, std::uint64_t blocks,
                             std::uint64_t capacity_bytes) {
  const std::uint64_t stripe_bytes = capacity_bytes / blocks / kUnitBytes * kUnitBytes;
  const std::uint64_t stripe = stripe_bytes / element_bytes;
  const Range first = part_of(count, 0, blocks, kUnitBytes);
  return Plan{stripe, stripe_bytes, divide_up(first.end, stripe)};
}

// What one rank gets of a half when every rank stores into all halves.
ALLRANKS_BOTH std::uint64_t share_of_half(const Team& team) {
  return team.half_bytes / team.rank_count / kUnitBytes * kUnitBytes;
}

ALLRANKS_BOTH std::uint32_t bytes_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8: return 1;
    case DataType::kInt16:
    case DataType::kUint16:
    case DataType::kFloat16:
    case DataType::kBfloat16: return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32: return 4;
    default: return 8;
  }
}

struct MultimemPair {
  bool exists;
  MultimemType type;
  MultimemOperation operation;
};

// What multimem.ld_reduce offers of a type and operation. Source: PTX ISA, "multimem.ld_reduce", sm_90. Signed 64-bit
// sums are unsigned ones bit for bit. Minimum and maximum of 16-bit floats are left out: the manual does not say what
// they do with NaN.
ALLRANKS_BOTH MultimemPair multimem_pair(DataType type, Operation operation) {
  const MultimemPair none{false, MultimemType::kU32, MultimemOperation::kAdd};
  const bool sum = operation == Operation::kSum;
  if (operation == Operation::kProd) return none;
  const MultimemOperation which = sum                            ? MultimemOperation::kAdd
                                  : operation == Operation::kMin ? MultimemOperation::kMin
                                                                 : MultimemOperation::kMax;
  switch (type) {
    case DataType::kInt32: return MultimemPair{true, MultimemType::kS32, which};
    case DataType::kUint32: return MultimemPair{true, MultimemType::kU32, which};
    case DataType::kInt64: return MultimemPair{true, sum ? MultimemType::kU64 : MultimemType::kS64, which};
    case DataType::kUint64: return MultimemPair{true, MultimemType::kU64, which};
    case DataType::kFloat16: return MultimemPair{sum, MultimemType::kF16, which};
    case DataType::kBfloat16: return MultimemPair{sum, MultimemType::kBf16, which};
    case DataType::kFloat32: return MultimemPair{sum, MultimemType::kF32, which};
    case DataType::kFloat64: return MultimemPair{sum, MultimemType::kF64, which};
    default: return none;
  }
}

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_PLAN_H_
