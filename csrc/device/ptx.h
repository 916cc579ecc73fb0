// PTX, and nothing but PTX: one instruction a wrapper. Source: PTX ISA 8.1 and later.
#ifndef ALLRANKS_DEVICE_PTX_H_
#define ALLRANKS_DEVICE_PTX_H_

#include <cstdint>
#include <cstring>

#include "layout.h"

namespace allranks::device::ptx {

// %globaltimer (PTX ISA "Special Registers"); sm_30.
__device__ inline std::uint64_t global_timer_ns() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// multimem.ld_reduce (PTX ISA "multimem.ld_reduce, multimem.st, multimem.red"); sm_90. Vectors exist for f16x2, bf16x2
// and f32; integers and f64 are scalar.
#define ALLRANKS_VECTOR_LOAD_REDUCE(name, qualifiers)                                           \
  __device__ inline void name(void* destination, Address from) {                                \
    std::uint32_t v[4];                                                                         \
    asm volatile("multimem.ld_reduce.relaxed.sys.global." qualifiers " {%0, %1, %2, %3}, [%4];" \
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])                               \
                 : "l"(from)                                                                    \
                 : "memory");                                                                   \
    memcpy(destination, v, sizeof v);                                                           \
  }
ALLRANKS_VECTOR_LOAD_REDUCE(load_add_f16, "add.acc::f32.v4.f16x2")
ALLRANKS_VECTOR_LOAD_REDUCE(load_add_bf16, "add.acc::f32.v4.bf16x2")
#undef ALLRANKS_VECTOR_LOAD_REDUCE

__device__ inline void load_add_f32(void* destination, Address from) {
  float v[4];
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "l"(from)
               : "memory");
  memcpy(destination, v, sizeof v);
}

#define ALLRANKS_SCALAR_LOAD_REDUCE(name, type, constraint, qualifiers)           \
  __device__ inline type name(Address from) {                                     \
    type value;                                                                   \
    asm volatile("multimem.ld_reduce.relaxed.sys.global." qualifiers " %0, [%1];" \
                 : "=" constraint(value)                                          \
                 : "l"(from)                                                      \
                 : "memory");                                                     \
    return value;                                                                 \
  }
ALLRANKS_SCALAR_LOAD_REDUCE(load_add_u32, std::uint32_t, "r", "add.u32")
ALLRANKS_SCALAR_LOAD_REDUCE(load_min_u32, std::uint32_t, "r", "min.u32")
ALLRANKS_SCALAR_LOAD_REDUCE(load_max_u32, std::uint32_t, "r", "max.u32")
ALLRANKS_SCALAR_LOAD_REDUCE(load_min_s32, std::uint32_t, "r", "min.s32")
ALLRANKS_SCALAR_LOAD_REDUCE(load_max_s32, std::uint32_t, "r", "max.s32")
ALLRANKS_SCALAR_LOAD_REDUCE(load_add_u64, std::uint64_t, "l", "add.u64")
ALLRANKS_SCALAR_LOAD_REDUCE(load_min_u64, std::uint64_t, "l", "min.u64")
ALLRANKS_SCALAR_LOAD_REDUCE(load_max_u64, std::uint64_t, "l", "max.u64")
ALLRANKS_SCALAR_LOAD_REDUCE(load_min_s64, std::uint64_t, "l", "min.s64")
ALLRANKS_SCALAR_LOAD_REDUCE(load_max_s64, std::uint64_t, "l", "max.s64")
ALLRANKS_SCALAR_LOAD_REDUCE(load_add_f64, double, "d", "add.f64")
// One packed register (two elements) or one float, for pieces of less than a vector.
ALLRANKS_SCALAR_LOAD_REDUCE(load_add_f16x2, std::uint32_t, "r", "add.acc::f32.f16x2")
ALLRANKS_SCALAR_LOAD_REDUCE(load_add_bf16x2, std::uint32_t, "r", "add.acc::f32.bf16x2")
ALLRANKS_SCALAR_LOAD_REDUCE(load_add_one_f32, float, "f", "add.f32")
#undef ALLRANKS_SCALAR_LOAD_REDUCE

// `load(address)` for each scalar of the piece.
template <typename Load>
__device__ inline void each_scalar(void* destination, Address from, std::uint32_t bytes, Load load) {
  using Scalar = decltype(load(from));
  for (std::uint32_t done = 0; done < bytes; done += sizeof(Scalar)) {
    const Scalar value = load(from + done);
    memcpy(static_cast<unsigned char*>(destination) + done, &value, sizeof value);
  }
}

template <typename Add, typename Min, typename Max>
__device__ inline void integers(MultimemOperation operation, void* destination, Address from, std::uint32_t bytes,
                                Add add, Min min, Max max) {
  switch (operation) {
    case MultimemOperation::kAdd: return each_scalar(destination, from, bytes, add);
    case MultimemOperation::kMin: return each_scalar(destination, from, bytes, min);
    case MultimemOperation::kMax: return each_scalar(destination, from, bytes, max);
  }
}

// `bytes` of one type, 4 to 16; the host has checked that PTX has the pair.
__device__ inline void multimem_load_reduce(void* destination, Address from, MultimemType type,
                                            MultimemOperation operation, std::uint32_t bytes) {
  const bool vector = bytes == 16;
  switch (type) {
    case MultimemType::kF16:
      return vector ? load_add_f16(destination, from) : each_scalar(destination, from, bytes, load_add_f16x2);
    case MultimemType::kBf16:
      return vector ? load_add_bf16(destination, from) : each_scalar(destination, from, bytes, load_add_bf16x2);
    case MultimemType::kF32:
      return vector ? load_add_f32(destination, from) : each_scalar(destination, from, bytes, load_add_one_f32);
    case MultimemType::kF64: return each_scalar(destination, from, bytes, load_add_f64);
    case MultimemType::kU32:
      return integers(operation, destination, from, bytes, load_add_u32, load_min_u32, load_max_u32);
    case MultimemType::kS32:
      return integers(operation, destination, from, bytes, load_add_u32, load_min_s32, load_max_s32);
    case MultimemType::kU64:
      return integers(operation, destination, from, bytes, load_add_u64, load_min_u64, load_max_u64);
    case MultimemType::kS64:
      return integers(operation, destination, from, bytes, load_add_u64, load_min_s64, load_max_s64);
  }
}

// multimem.st of 4, 8 or 16 bytes, naturally aligned; sm_90.
__device__ inline void multimem_store(Address to, const void* source, std::uint32_t bytes) {
  if (bytes == 16) {
    float v[4];
    memcpy(v, source, sizeof v);
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v[0]), "f"(v[1]),
                 "f"(v[2]), "f"(v[3])
                 : "memory");
  } else if (bytes == 8) {
    std::uint64_t v;
    memcpy(&v, source, sizeof v);
    asm volatile("multimem.st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
  } else {
    std::uint32_t v;
    memcpy(&v, source, sizeof v);
    asm volatile("multimem.st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
  }
}

}  // namespace allranks::device::ptx

#endif  // ALLRANKS_DEVICE_PTX_H_
