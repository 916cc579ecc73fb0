// Element types and what the operations do to them.
//
// 16-bit floats are computed in float and rounded once, at the end of a reduction. Integers wrap around. Minimum and
// maximum give NaN if any operand is NaN, as numpy.minimum and numpy.maximum do.
#ifndef ALLRANKS_DEVICE_NUMBERS_H_
#define ALLRANKS_DEVICE_NUMBERS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "platform.h"

namespace allranks::device {

ALLRANKS_DEVICE float float_from_bits(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
ALLRANKS_DEVICE std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// IEEE binary16 as bits.
struct Float16 {
  std::uint16_t bits;
};

ALLRANKS_DEVICE float widen(Float16 number) {
  const std::uint32_t sign = (number.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = number.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_from_bits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  // As a float with the half's exponent, then scaled by 2^112: exact for subnormals too.
  const float scaled = float_from_bits(magnitude << 13) * float_from_bits(0x77800000u);
  return float_from_bits(bits_of_float(scaled) | sign);
}

// Rounds to nearest, ties to even.
ALLRANKS_DEVICE Float16 narrow_float16(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t result = 0;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {
    result = 0x7c00u;  // 65520 and above round to infinity
  } else if (magnitude >= 0x38800000u) {
    result = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {
    // A float whose unit is the smallest half: adding 0.5 rounds there.
    const float shifted = float_from_bits(magnitude) + float_from_bits(0x3f000000u);
    result = bits_of_float(shifted) - 0x3f000000u;
  }
  return Float16{static_cast<std::uint16_t>(sign | result)};
}

// The upper half of a float.
struct Bfloat16 {
  std::uint16_t bits;
};

ALLRANKS_DEVICE float widen(Bfloat16 number) { return float_from_bits(static_cast<std::uint32_t>(number.bits) << 16); }
ALLRANKS_DEVICE Bfloat16 narrow_bfloat16(float value) {
  const std::uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return Bfloat16{static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return Bfloat16{static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// In what type a reduction computes, and the ways there and back.
template <typename T>
struct Arithmetic {
  using Wide = T;
  ALLRANKS_DEVICE static Wide wide(T value) { return value; }
  ALLRANKS_DEVICE static T narrow(Wide value) { return value; }
};
template <>
struct Arithmetic<Float16> {
  using Wide = float;
  ALLRANKS_DEVICE static float wide(Float16 value) { return widen(value); }
  ALLRANKS_DEVICE static Float16 narrow(float value) { return narrow_float16(value); }
};
template <>
struct Arithmetic<Bfloat16> {
  using Wide = float;
  ALLRANKS_DEVICE static float wide(Bfloat16 value) { return widen(value); }
  ALLRANKS_DEVICE static Bfloat16 narrow(float value) { return narrow_bfloat16(value); }
};

template <typename W>
ALLRANKS_DEVICE bool is_nan(W value) {
  if constexpr (std::is_floating_point_v<W>) {
    return value != value;
  } else {
    return false;
  }
}

template <Operation operation, typename W>
ALLRANKS_DEVICE W combine(W a, W b) {
  if constexpr (operation == Operation::kMin) {
    return is_nan(a) || (!is_nan(b) && !(b < a)) ? a : b;
  } else if constexpr (operation == Operation::kMax) {
    return is_nan(a) || (!is_nan(b) && !(a < b)) ? a : b;
  } else if constexpr (std::is_integral_v<W>) {
    // Unsigned and at least 32 bits wide, so that wrapping around is defined.
    using Bits = std::conditional_t<sizeof(W) < 4, std::uint32_t, std::make_unsigned_t<W>>;
    const auto x = static_cast<Bits>(static_cast<std::make_unsigned_t<W>>(a));
    const auto y = static_cast<Bits>(static_cast<std::make_unsigned_t<W>>(b));
    return static_cast<W>(operation == Operation::kSum ? x + y : x * y);
  } else {
    return operation == Operation::kSum ? a + b : a * b;
  }
}

// Calls work(T{}) with the element type that the number means.
template <typename Work>
ALLRANKS_DEVICE void with_type(DataType type, Work work) {
  switch (type) {
    case DataType::kInt8: return work(std::int8_t{});
    case DataType::kUint8: return work(std::uint8_t{});
    case DataType::kInt16: return work(std::int16_t{});
    case DataType::kUint16: return work(std::uint16_t{});
    case DataType::kInt32: return work(std::int32_t{});
    case DataType::kUint32: return work(std::uint32_t{});
    case DataType::kInt64: return work(std::int64_t{});
    case DataType::kUint64: return work(std::uint64_t{});
    case DataType::kFloat16: return work(Float16{});
    case DataType::kBfloat16: return work(Bfloat16{});
    case DataType::kFloat32: return work(float{});
    case DataType::kFloat64: return work(double{});
  }
}

template <Operation operation>
using OperationTag = std::integral_constant<Operation, operation>;

// Calls work(OperationTag<...>{}).
template <typename Work>
ALLRANKS_DEVICE void with_operation(Operation operation, Work work) {
  switch (operation) {
    case Operation::kSum: return work(OperationTag<Operation::kSum>{});
    case Operation::kProd: return work(OperationTag<Operation::kProd>{});
    case Operation::kMin: return work(OperationTag<Operation::kMin>{});
    case Operation::kMax: return work(OperationTag<Operation::kMax>{});
  }
}

}  // namespace allranks::device

#endif  // ALLRANKS_DEVICE_NUMBERS_H_
