// The two formats of eight bits that products may round their factors to (Micikevicius et al. 2022, arXiv 2209.05433),
// and the scale of a tensor: a power of two, so that what was rounded is a bf16, and a product of fp8 numbers is the
// product of those.
#pragma once

#include "tensor/ops.h"

namespace ms::tensor {

// e4m3: 4 bits of exponent, 3 of mantissa, largest 448; e5m2: 5 and 2, largest 57344.
enum class Fp8 : std::uint8_t { e4m3, e5m2 };

// Of the first and the second factor of a product whose factors are rounded.
inline Fp8 fp8_of_a(Factors factors) { return factors == Factors::fp8_gradient ? Fp8::e5m2 : Fp8::e4m3; }
inline constexpr Fp8 kFp8OfB = Fp8::e4m3;

// k: by 2^k the largest magnitude, finite, comes as near to the format's largest as a power of two brings it. Bounded,
// so that 2^k, 2^-k and the smallest number of the format over 2^k are bf16.
int fp8_shift(float largest, Fp8 format);
// The nearest number of the format, ties to even; magnitudes above its largest become that.
float round_to_fp8(float x, Fp8 format);
// Of bf16. Not finite where x has what is not.
float largest_magnitude(const Tensor& x);
// dst = src, both bf16 and of the same shape, rounded as the factor of a product is: round(x 2^k) 2^-k, k that of
// `largest`; not numbers where that is not finite.
void round_tensor_to_fp8(const Tensor& dst, const Tensor& src, float largest, Fp8 format);

}  // namespace ms::tensor
