// Vectors of the instruction set that this translation unit is compiled for: f32 lanes, bf16 loads and stores, exp.
// Every source in this folder is compiled once per instruction set into its own namespace, MS_ISA, and everything here
// is inlined into it, so that the linker cannot mistake a function for the same one of another instruction set.
#pragma once

#include <cstdint>
#include <utility>

#include "tensor/tensor.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#ifndef MS_ISA
#define MS_ISA generic
#endif
#define MS_INLINE inline __attribute__((always_inline))

namespace ms::tensor::MS_ISA {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
inline constexpr int kLanes = kVectorBytes / 4;

using Vf [[gnu::vector_size(kVectorBytes)]] = float;
using Vi [[gnu::vector_size(kVectorBytes)]] = std::int32_t;
using Vu [[gnu::vector_size(kVectorBytes)]] = std::uint32_t;
using Vh [[gnu::vector_size(kVectorBytes / 2)]] = std::uint16_t;
using VfHalf [[gnu::vector_size(kVectorBytes / 2)]] = float;
using Vd [[gnu::vector_size(kVectorBytes)]] = double;

MS_INLINE Vf splat(float x) { return x - Vf{}; }
MS_INLINE Vi splat(std::int32_t x) { return x - Vi{}; }
MS_INLINE Vi lane_index() {
  Vi index{};
  for (int i = 0; i < kLanes; ++i) index[i] = i;
  return index;
}

// Returns x as it is: a multiplication that made it is not fused with an addition that follows. Where two could be, the
// compiler's choice, and so the bits, would depend on the code around.
MS_INLINE Vf unfused(Vf x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#elif defined(__aarch64__)
  asm("" : "+w"(x));
#endif
  return x;
}

MS_INLINE Vf widen(Vh bits) { return reinterpret_cast<Vf>(__builtin_convertvector(bits, Vu) << 16); }
MS_INLINE float widen(std::uint16_t bits) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
MS_INLINE Vh narrow(Vf x) {
#if defined(__AVX512BF16__)
  // The processor's own conversion flushes subnormal numbers to 0.
  constexpr int kDenormal = 0x20;
  const auto lanes = reinterpret_cast<__m512>(x);
  if (__builtin_expect(_mm512_fpclass_ps_mask(lanes, kDenormal) == 0, 1)) {
    return reinterpret_cast<Vh>(_mm512_cvtneps_pbh(lanes));
  }
#endif
  const Vu bits = reinterpret_cast<Vu>(x);
  const Vu rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const Vu quiet = (bits >> 16) | 0x40U;
  return __builtin_convertvector(x == x ? rounded : quiet, Vh);
}
MS_INLINE std::uint16_t narrow(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return static_cast<std::uint16_t>(x == x ? rounded : (bits >> 16) | 0x40U);
}

MS_INLINE float get(const float* p) { return *p; }
MS_INLINE float get(const bfloat16* p) { return widen(p->bits); }
MS_INLINE void put(float* p, float x) { *p = x; }
MS_INLINE void put(bfloat16* p, float x) { p->bits = narrow(x); }

// How many elements of a vector are in memory: all, or the first n (the others read as 0 and are not written).
struct Full {};
struct Part {
  int n;
};

MS_INLINE Vf load(const float* p, Full = {}) {
  Vf x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
MS_INLINE Vf load(const bfloat16* p, Full = {}) {
  Vh x;
  __builtin_memcpy(&x, p, sizeof x);
  return widen(x);
}
MS_INLINE void store(float* p, Vf x, Full = {}) { __builtin_memcpy(p, &x, sizeof x); }
MS_INLINE void store(bfloat16* p, Vf x, Full = {}) {
  const Vh bits = narrow(x);
  __builtin_memcpy(p, &bits, sizeof bits);
}
MS_INLINE Vf load(const float* p, Part part) {
  Vf x{};
  for (int i = 0; i < part.n; ++i) x[i] = p[i];
  return x;
}
MS_INLINE Vf load(const bfloat16* p, Part part) {
  Vf x{};
  for (int i = 0; i < part.n; ++i) x[i] = widen(p[i].bits);
  return x;
}
MS_INLINE void store(float* p, Vf x, Part part) {
  for (int i = 0; i < part.n; ++i) p[i] = x[i];
}
MS_INLINE void store(bfloat16* p, Vf x, Part part) {
  for (int i = 0; i < part.n; ++i) p[i].bits = narrow(x[i]);
}

// Rounds to what bf16 has next, up or down: up if the 16 bits that it has no room for, and `chance` below 2^16, add up
// to 2^16. NaN stays NaN.
MS_INLINE void store_rounded(bfloat16* p, Vf x, Vu chance, auto lanes) {
  const Vu bits = reinterpret_cast<Vu>(x);
  const Vu rounded = x == x ? (bits + chance) & 0xFFFF0000U : bits | 0x400000U;
  store(p, reinterpret_cast<Vf>(rounded), lanes);  // which is exact
}

// Returns x with `other` in the lanes that are not in memory.
MS_INLINE Vf keep(Vf x, Full, Vf) { return x; }
MS_INLINE Vf keep(Vf x, Part part, Vf other) { return lane_index() < part.n ? x : other; }
MS_INLINE Vf keep(Vf x, auto lanes) { return keep(x, lanes, Vf{}); }

// Calls body(i, Full or Part) for the vectors of [0, n).
template <class Body>
MS_INLINE void each_vector(std::int64_t n, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Full{});
  if (i < n) body(i, Part{static_cast<int>(n - i)});
}

MS_INLINE float sum(Vf x) {
  float lanes[kLanes];
  __builtin_memcpy(lanes, &x, sizeof lanes);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}
MS_INLINE double sum(Vd x) {
  double total = 0;
  for (int i = 0; i < kLanes / 2; ++i) total += x[i];
  return total;
}
MS_INLINE float max(Vf x) {
  float top = x[0];
  for (int i = 1; i < kLanes; ++i) top = x[i] > top ? x[i] : top;
  return top;
}
MS_INLINE Vf max(Vf x, Vf y) { return x > y ? x : y; }

namespace detail {
// Returns 2^(n + f), n in the low bits of `shifted`, |f| <= 1/2: relative error below 1e-7, 2^0 exactly 1.
MS_INLINE Vf exp2_reduced(Vf f, Vf shifted) {
  Vf p = splat(1.54531629e-4F);
  p = p * f + 1.339086336e-3F;
  p = p * f + 9.618082557e-3F;
  p = p * f + 5.550357114e-2F;
  p = p * f + 2.402265076e-1F;
  p = p * f + 6.931471880e-1F;
  p = p * f + 1.0F;
  return reinterpret_cast<Vf>(reinterpret_cast<Vu>(p) + (reinterpret_cast<Vu>(shifted) << 23));
}
inline constexpr float kRoundShift = 12582912.0F;  // 1.5 * 2^23: adding it leaves the integer part in the low bits
}  // namespace detail

// Returns 2^x for x <= 0 or so (below 128), after the caller subtracted a maximum: 0 below -126; NaN stays NaN.
MS_INLINE Vf exp2_nonpositive(Vf x) {
  const Vf shifted = x + detail::kRoundShift;
  const Vf y = detail::exp2_reduced(x - (shifted - detail::kRoundShift), shifted);
  return x < -126.0F ? Vf{} : y;
}

// Returns e^x: 0 below -87.3, infinity above 88.72; NaN stays NaN.
MS_INLINE Vf exp(Vf x) {
  const Vf shifted = x * 1.44269504F + detail::kRoundShift;
  const Vf n = shifted - detail::kRoundShift;
  Vf r = x - n * 0.693359375F;  // ln 2 in two parts, the first with few bits: n times it is exact
  r = r + n * 2.12194440e-4F;
  Vf y = detail::exp2_reduced(r * 1.44269504F, shifted);
  y = x < -87.336F ? Vf{} : y;
  y = x > 88.7228F ? splat(__builtin_inff()) : y;
  return x == x ? y : x;
}

MS_INLINE Vf sigmoid(Vf x) { return 1.0F / (1.0F + exp(-x)); }

MS_INLINE Vf sqrt(Vf x) {
  Vf y;
  for (int i = 0; i < kLanes; ++i) y[i] = __builtin_sqrtf(x[i]);
  return y;
}

namespace detail {
template <int... I>
MS_INLINE Vf interleave_low(Vf x, Vf y, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, y, (I / 2 + I % 2 * kLanes)...);
}
template <int... I>
MS_INLINE Vf interleave_high(Vf x, Vf y, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, y, (kLanes / 2 + I / 2 + I % 2 * kLanes)...);
}
}  // namespace detail

// Transposes a square of kLanes rows. Each round is a perfect shuffle of the whole, which rotates the bits of (row,
// column) by one.
MS_INLINE void transpose(Vf (&rows)[kLanes]) {
  using Lanes = std::make_integer_sequence<int, kLanes>;
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    Vf next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = detail::interleave_low(rows[i], rows[i + kLanes / 2], Lanes{});
      next[2 * i + 1] = detail::interleave_high(rows[i], rows[i + kLanes / 2], Lanes{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

}  // namespace ms::tensor::MS_ISA
