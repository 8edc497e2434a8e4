// The two fp8 formats that matmuls may round their operands to (Micikevicius et al. 2022, arXiv 2209.05433), and the
// scale of a tensor. The scale is a power of two: a rounded element, scaled back, is then exactly a bf16, and the fp8
// GEMM equals the GEMM of those bf16 operands.
#pragma once

#include "tensor/ops.h"

namespace ms::tensor {

// e4m3: 4 bits of exponent, 3 of mantissa, at most 448; e5m2: 5 and 2, at most 57344.
enum class Fp8 : std::uint8_t { e4m3, e5m2 };

// The formats of operands a and b, if a matmul rounds them.
inline Fp8 fp8_of_a(Operands operands) { return operands == Operands::fp8_gradient ? Fp8::e5m2 : Fp8::e4m3; }
inline constexpr Fp8 kFp8OfB = Fp8::e4m3;

// Returns the exponent k of a tensor's scale 2^k: the greatest for which amax * 2^k does not exceed the greatest number
// of the format. `amax` is finite. k is bounded, so that 2^k, 2^-k and the smallest number of the format over 2^k are
// bf16.
int fp8_shift(float amax, Fp8 format);
// Returns the nearest number of the format, ties to even; values beyond its range saturate.
float round_to_fp8(float x, Fp8 format);
// Returns the largest |element| of a bf16 tensor; not finite if an element is not.
float amax_of(const Tensor& x);
// Sets dst = round(src 2^k) 2^-k with the k of `amax`, as a matmul rounds its operands; NaN everywhere if `amax` is not
// finite. Both are bf16 of the same shape.
void round_tensor_to_fp8(const Tensor& dst, const Tensor& src, float amax, Fp8 format);

}  // namespace ms::tensor
