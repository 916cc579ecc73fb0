// The arithmetic of multimem.ld_reduce and multimem.red: which pairs of type and operation exist, and what they do.
//
// Source: PTX ISA, "multimem.ld_reduce, multimem.st, multimem.red": sums of u32, s32, u64, f16, bf16, f32, f64 and of
// fp8 from compute capability 10.0 on; minima and maxima of integers, f16, bf16 and fp8; bitwise operations on b32
// and b64. No products, no other 8-bit types, no minima of f32 or f64.
#ifndef ALLRANKS_SIMCUDA_MULTIMEM_HPP_
#define ALLRANKS_SIMCUDA_MULTIMEM_HPP_

#include <cstddef>

#include "include/simcu.h"

namespace allranks::sim {

// Bytes of one element; 0 for an unknown type.
std::size_t element_bytes(int type);

// Whether the instruction exists for this pair on this compute capability.
bool multimem_supported(int type, int operation, int compute_capability_major);

// accumulator[i] = accumulator[i] op operand[i] for `count` elements.
void reduce_elements(int type, int operation, void* accumulator, const void* operand, int count);

}  // namespace allranks::sim

#endif  // ALLRANKS_SIMCUDA_MULTIMEM_HPP_
