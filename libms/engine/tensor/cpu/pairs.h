// bf16 GEMMs for processors with AVX512_BF16: a lane of 32 bits holds a pair of neighbouring terms, and one instruction
// adds the dot product of two pairs to a sum in f32. Sources of every instruction set include this; it defines
// something only for that one.
#pragma once

#include "tensor/cpu/gemm.h"

#if defined(__AVX512BF16__)

namespace ms::tensor::MS_ISA {

using Pair = std::uint32_t;                                   // the even term in the low half
using Vw [[gnu::vector_size(kVectorBytes)]] = std::uint16_t;  // bf16 of two vectors

MS_INLINE Vu load_pairs(const Pair* p) {
  Vu x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
MS_INLINE void store_pairs(Pair* p, Vu x) { __builtin_memcpy(p, &x, sizeof x); }

MS_INLINE Vf dot(Vf sum, Vu a, Vu b) {
  return reinterpret_cast<Vf>(
      _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)));
}

// The first vector's elements, then the second's.
MS_INLINE Vw narrow(Vf first, Vf second) {
  return reinterpret_cast<Vw>(_mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first)));
}
namespace detail {
template <int... I>
MS_INLINE Vw pair_up(Vw x, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, x, (I / 2 + I % 2 * kLanes)...);
}
}  // namespace detail
// Element i of the first vector with element i of the second.
MS_INLINE Vu pair_up(Vw x) {
  return reinterpret_cast<Vu>(detail::pair_up(x, std::make_integer_sequence<int, 2 * kLanes>{}));
}

// Loads the first n of up to kLanes elements; the others are 0.
MS_INLINE Vu load_bits(const bfloat16* x, Index n) {
  Vh half{};
  if (n >= kLanes) {
    __builtin_memcpy(&half, x, sizeof half);
  } else if (n > 0) {
    __builtin_memcpy(&half, x, static_cast<std::size_t>(n) * 2);
  }
  return __builtin_convertvector(half, Vu);
}
// Returns rows 2k and 2k + 1 of x[rows][..] from column j on, n columns of them, as pairs. An odd row that is not there
// is zeros.
MS_INLINE Vu paired_rows(const bfloat16* x, Index ld, Index rows, Index k, Index j, Index n) {
  const Vu odd = 2 * k + 1 < rows ? load_bits(x + (2 * k + 1) * ld + j, n) : Vu{};
  return load_bits(x + 2 * k * ld + j, n) | odd << 16;
}

// Pairs row 2i with row 2i + 1 of x[rows][cols] into out[ceil(rows / 2)][cols]; an odd last row is paired with zeros.
// cols are whole vectors.
MS_INLINE void pair_rows(Pair* out, Index ldo, const bfloat16* x, Index ldx, Index rows, Index cols) {
  const auto bits = [&](Index row, Index col) {
    Vh half;
    __builtin_memcpy(&half, x + row * ldx + col, sizeof half);
    return __builtin_convertvector(half, Vu);
  };
  for (Index i = 0; i < rows; i += 2) {
    for (Index j = 0; j < cols; j += kLanes) {
      const Vu odd = i + 1 < rows ? bits(i + 1, j) << 16 : Vu{};
      store_pairs(out + i / 2 * ldo + j, bits(i, j) | odd);
    }
  }
}

// Pair (i, k) of a is at a[i * lda + k], or at a[k * lda + i] if a is read transposed.
struct PairOperand {
  const Pair* data;
  Index ld;
};

template <GemmKind kKind, bool kTransposed, int kRows, int kVectors>
MS_INLINE void dot_tile(PairOperand a, PairOperand b, float* c, Index ldc, Index pairs, const float* scale) {
  Vf sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      if constexpr (kKind == GemmKind::set) {
        sums[i][j] = Vf{};
      } else {
        sums[i][j] = load(c + i * ldc + j * kLanes);
        if constexpr (kKind == GemmKind::scale_add) sums[i][j] *= scale[i];
      }
    }
  }
  Index k = 0;
  do {  // at least one: a loop that might not run would cost copies of all sums
    Vu right[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) right[j] = load_pairs(b.data + k * b.ld + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vu left = (kTransposed ? a.data[k * a.ld + i] : a.data[i * a.ld + k]) - Vu{};
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sums[i][j] = dot(sums[i][j], left, right[j]);
    }
  } while (++k < pairs);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) store(c + i * ldc + j * kLanes, sums[i][j]);
  }
}

template <GemmKind kKind, bool kTransposed, int kVectors>
inline void dot_panel(PairOperand a, PairOperand b, float* c, Index ldc, Index rows, Index pairs, const float* scale) {
  const Index step = kTransposed ? 1 : a.ld;
  Index i = 0;
  const auto tile = [&]<int kRows>(std::integral_constant<int, kRows>) {
    dot_tile<kKind, kTransposed, kRows, kVectors>({a.data + i * step, a.ld}, b, c + i * ldc, ldc, pairs,
                                                  kKind == GemmKind::scale_add ? scale + i : nullptr);
    i += kRows;
  };
  while (i + kTileRows <= rows) tile(std::integral_constant<int, kTileRows>{});
  while (i + 2 <= rows) tile(std::integral_constant<int, 2>{});
  if (i < rows) tile(std::integral_constant<int, 1>{});
}

// c[rows][cols] (+)= a[rows][pairs] b[pairs][cols]; cols is a multiple of kLanes. Here scale_add means c[i] * scale[i].
template <GemmKind kKind, bool kTransposed = false>
inline void dot_gemm(PairOperand a, PairOperand b, float* c, Index ldc, Index rows, Index cols, Index pairs,
                     const float* scale = nullptr) {
  Index j = 0;
  for (; j + 4 * kLanes <= cols; j += 4 * kLanes) {
    dot_panel<kKind, kTransposed, 4>(a, {b.data + j, b.ld}, c + j, ldc, rows, pairs, scale);
  }
  for (; j + 2 * kLanes <= cols; j += 2 * kLanes) {
    dot_panel<kKind, kTransposed, 2>(a, {b.data + j, b.ld}, c + j, ldc, rows, pairs, scale);
  }
  if (j < cols) dot_panel<kKind, kTransposed, 1>(a, {b.data + j, b.ld}, c + j, ldc, rows, pairs, scale);
}

}  // namespace ms::tensor::MS_ISA

#endif
