#include "multimem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace allranks::sim {

namespace {

bool is_fp8(int type) { return type == SIMCU_TYPE_E4M3 || type == SIMCU_TYPE_E5M2; }

// A binary floating-point format of at most 16 bits, given by its widths.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // e4m3 has none: its largest exponent holds numbers, and all ones is NaN

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int top_exponent() const { return (1 << exponent_bits) - 1; }

  float decode(std::uint32_t bits) const {
    const bool negative = (bits >> (exponent_bits + mantissa_bits)) & 1u;
    const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
    const std::uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    float value = 0;
    if (has_infinity && exponent == top_exponent()) {
      value = mantissa == 0 ? INFINITY : NAN;
    } else if (!has_infinity && exponent == top_exponent() && mantissa == (1u << mantissa_bits) - 1) {
      value = NAN;
    } else if (exponent == 0) {
      value = std::ldexp(static_cast<float>(mantissa), 1 - bias() - mantissa_bits);
    } else {
      value = std::ldexp(static_cast<float>(mantissa | (1u << mantissa_bits)), exponent - bias() - mantissa_bits);
    }
    return negative ? -value : value;
  }

  // Rounds to nearest, ties to even.
  std::uint32_t encode(float value) const {
    const std::uint32_t sign = std::signbit(value) ? 1u << (exponent_bits + mantissa_bits) : 0u;
    const auto top = static_cast<std::uint32_t>(top_exponent()) << mantissa_bits;
    const std::uint32_t all_ones = top | ((1u << mantissa_bits) - 1);
    if (std::isnan(value)) return sign | all_ones;
    const std::uint32_t largest = has_infinity ? top - 1 : all_ones - 1;
    const std::uint32_t overflow = has_infinity ? top : all_ones - 1;
    if (std::isinf(value)) return sign | overflow;
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude == 0) return sign;
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int unit = std::max(exponent - 1, 1 - bias()) - mantissa_bits;
    const double scaled = std::nearbyint(std::ldexp(magnitude, -unit));
    const auto steps = static_cast<std::uint32_t>(scaled);
    const int biased = unit + mantissa_bits + bias();
    // A mantissa that rounded up to the next power of two carries into the exponent by itself.
    const std::uint32_t bits =
        steps < (1u << mantissa_bits) ? steps : (static_cast<std::uint32_t>(biased - 1) << mantissa_bits) + steps;
    return sign | (bits > largest ? overflow : bits);
  }
};

SmallFloat format_of(int type) {
  switch (type) {
    case SIMCU_TYPE_F16: return {5, 10, true};
    case SIMCU_TYPE_BF16: return {8, 7, true};
    case SIMCU_TYPE_E5M2: return {5, 2, true};
    default: return {4, 3, false};
  }
}

template <typename T>
T combine(int operation, T a, T b) {
  if (operation == SIMCU_OP_MIN) return std::min(a, b);
  if (operation == SIMCU_OP_MAX) return std::max(a, b);
  if constexpr (std::is_unsigned_v<T>) {
    if (operation == SIMCU_OP_AND) return a & b;
    if (operation == SIMCU_OP_OR) return a | b;
    if (operation == SIMCU_OP_XOR) return a ^ b;
  }
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Bits>(static_cast<Bits>(a) + static_cast<Bits>(b)));
  } else {
    return a + b;
  }
}

template <typename T>
void reduce_as(int operation, void* accumulator, const void* operand, int count) {
  for (int i = 0; i < count; ++i) {
    T a{};
    T b{};
    std::memcpy(&a, static_cast<unsigned char*>(accumulator) + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    std::memcpy(&b, static_cast<const unsigned char*>(operand) + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    a = combine(operation, a, b);
    std::memcpy(static_cast<unsigned char*>(accumulator) + static_cast<std::size_t>(i) * sizeof(T), &a, sizeof(T));
  }
}

template <typename Bits>
void reduce_small(const SmallFloat& format, int operation, void* accumulator, const void* operand, int count) {
  for (int i = 0; i < count; ++i) {
    Bits a{};
    Bits b{};
    std::memcpy(&a, static_cast<unsigned char*>(accumulator) + static_cast<std::size_t>(i) * sizeof(Bits), sizeof a);
    std::memcpy(&b, static_cast<const unsigned char*>(operand) + static_cast<std::size_t>(i) * sizeof(Bits), sizeof b);
    a = static_cast<Bits>(format.encode(combine(operation, format.decode(a), format.decode(b))));
    std::memcpy(static_cast<unsigned char*>(accumulator) + static_cast<std::size_t>(i) * sizeof(Bits), &a, sizeof a);
  }
}

}  // namespace

std::size_t element_bytes(int type) {
  switch (type) {
    case SIMCU_TYPE_U32:
    case SIMCU_TYPE_S32:
    case SIMCU_TYPE_F32:
    case SIMCU_TYPE_B32: return 4;
    case SIMCU_TYPE_U64:
    case SIMCU_TYPE_S64:
    case SIMCU_TYPE_F64:
    case SIMCU_TYPE_B64: return 8;
    case SIMCU_TYPE_F16:
    case SIMCU_TYPE_BF16: return 2;
    case SIMCU_TYPE_E4M3:
    case SIMCU_TYPE_E5M2: return 1;
    default: return 0;
  }
}

bool multimem_supported(int type, int operation, int compute_capability_major) {
  if (compute_capability_major < 9) return false;
  if (is_fp8(type)) return compute_capability_major >= 10 && operation <= SIMCU_OP_MAX;
  switch (operation) {
    case SIMCU_OP_ADD:
      return type == SIMCU_TYPE_U32 || type == SIMCU_TYPE_S32 || type == SIMCU_TYPE_U64 || type == SIMCU_TYPE_F16 ||
             type == SIMCU_TYPE_BF16 || type == SIMCU_TYPE_F32 || type == SIMCU_TYPE_F64;
    case SIMCU_OP_MIN:
    case SIMCU_OP_MAX:
      return type == SIMCU_TYPE_U32 || type == SIMCU_TYPE_S32 || type == SIMCU_TYPE_U64 || type == SIMCU_TYPE_S64 ||
             type == SIMCU_TYPE_F16 || type == SIMCU_TYPE_BF16;
    case SIMCU_OP_AND:
    case SIMCU_OP_OR:
    case SIMCU_OP_XOR: return type == SIMCU_TYPE_B32 || type == SIMCU_TYPE_B64;
    default: return false;
  }
}

void reduce_elements(int type, int operation, void* accumulator, const void* operand, int count) {
  switch (type) {
    case SIMCU_TYPE_U32:
    case SIMCU_TYPE_B32: return reduce_as<std::uint32_t>(operation, accumulator, operand, count);
    case SIMCU_TYPE_S32: return reduce_as<std::int32_t>(operation, accumulator, operand, count);
    case SIMCU_TYPE_U64:
    case SIMCU_TYPE_B64: return reduce_as<std::uint64_t>(operation, accumulator, operand, count);
    case SIMCU_TYPE_S64: return reduce_as<std::int64_t>(operation, accumulator, operand, count);
    case SIMCU_TYPE_F32: return reduce_as<float>(operation, accumulator, operand, count);
    case SIMCU_TYPE_F64: return reduce_as<double>(operation, accumulator, operand, count);
    case SIMCU_TYPE_F16:
    case SIMCU_TYPE_BF16: return reduce_small<std::uint16_t>(format_of(type), operation, accumulator, operand, count);
    default: return reduce_small<std::uint8_t>(format_of(type), operation, accumulator, operand, count);
  }
}

}  // namespace allranks::sim
