// Data types and operations of the collectives, by the numbers that host and device code share.
#ifndef ALLRANKS_DEVICE_TYPES_H_
#define ALLRANKS_DEVICE_TYPES_H_

#include <cstdint>

namespace allranks::device {

enum class DataType : std::uint32_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt16 = 2,
  kUint16 = 3,
  kInt32 = 4,
  kUint32 = 5,
  kInt64 = 6,
  kUint64 = 7,
  kFloat16 = 8,
  kBfloat16 = 9,
  kFloat32 = 10,
  kFloat64 = 11
};
inline constexpr std::uint32_t kDataTypeCount = 12;

enum class Operation : std::uint32_t { kSum = 0, kProd = 1, kMin = 2, kMax = 3 };
inline constexpr std::uint32_t kOperationCount = 4;

// As simcuMultimemType and simcuMultimemOperation of simcu.h, which follow the PTX manual's names.
enum class MultimemType : std::int32_t {
  kU32 = 0,
  kS32 = 1,
  kU64 = 2,
  kS64 = 3,
  kF16 = 4,
  kBf16 = 5,
  kF32 = 6,
  kF64 = 7
};
enum class MultimemOperation : std::int32_t { kAdd = 0, kMin = 1, kMax = 2 };

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_TYPES_H_
