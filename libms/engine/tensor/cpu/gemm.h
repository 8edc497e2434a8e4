// Small GEMMs for attention: c (+)= a b. Rows of b and c are whole vectors in scratch memory; the elements of a are
// broadcast. Register tiles of kTileRows x kTileVectors; sums run in the order of k.
#pragma once

#include "tensor/cpu/parallel.h"

namespace ms::tensor::MS_ISA {

#if defined(__AVX512F__)
inline constexpr int kTileRows = 6, kTileVectors = 4;  // 24 sums, 4 of b and a broadcast in 32 registers
#else
inline constexpr int kTileRows = 6, kTileVectors = 2;  // 12 sums, 2 of b and a broadcast in 16 registers
#endif

enum class GemmKind { set, add, scale_add };  // c = ab, c = c + ab, c = c * scale[column] + ab

// Element (i, k) of a is at a[i * lda + k], or at a[k * lda + i] if a is read transposed.
struct Operand {
  const float* data;
  Index ld;
};

template <GemmKind kKind, bool kTransposed, int kRows, int kVectors>
MS_INLINE void gemm_tile(Operand a, Operand b, float* c, Index ldc, Index terms, const float* scale) {
  Vf sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      if constexpr (kKind == GemmKind::set) {
        sums[i][j] = Vf{};
      } else {
        sums[i][j] = load(c + i * ldc + j * kLanes);
        if constexpr (kKind == GemmKind::scale_add) sums[i][j] *= load(scale + j * kLanes);
      }
    }
  }
  for (Index k = 0; k < terms; ++k) {
    Vf right[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) right[j] = load(b.data + k * b.ld + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vf left = splat(kTransposed ? a.data[k * a.ld + i] : a.data[i * a.ld + k]);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sums[i][j] += left * right[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) store(c + i * ldc + j * kLanes, sums[i][j]);
  }
}

template <GemmKind kKind, bool kTransposed, int kVectors>
inline void gemm_panel(Operand a, Operand b, float* c, Index ldc, Index rows, Index terms, const float* scale) {
  const Index step = kTransposed ? 1 : a.ld;
  Index i = 0;
  for (; i + kTileRows <= rows; i += kTileRows) {
    gemm_tile<kKind, kTransposed, kTileRows, kVectors>({a.data + i * step, a.ld}, b, c + i * ldc, ldc, terms, scale);
  }
  const Operand rest{a.data + i * step, a.ld};
  switch (rows - i) {
    case 5: return gemm_tile<kKind, kTransposed, 5, kVectors>(rest, b, c + i * ldc, ldc, terms, scale);
    case 4: return gemm_tile<kKind, kTransposed, 4, kVectors>(rest, b, c + i * ldc, ldc, terms, scale);
    case 3: return gemm_tile<kKind, kTransposed, 3, kVectors>(rest, b, c + i * ldc, ldc, terms, scale);
    case 2: return gemm_tile<kKind, kTransposed, 2, kVectors>(rest, b, c + i * ldc, ldc, terms, scale);
    case 1: return gemm_tile<kKind, kTransposed, 1, kVectors>(rest, b, c + i * ldc, ldc, terms, scale);
    default: return;
  }
}

// c[rows][cols] (+)= a[rows][terms] b[terms][cols]; cols is a multiple of kLanes.
template <GemmKind kKind, bool kTransposed = false>
inline void gemm(Operand a, Operand b, float* c, Index ldc, Index rows, Index cols, Index terms,
                 const float* scale = nullptr) {
  Index j = 0;
  const auto columns_scale = [&] { return kKind == GemmKind::scale_add ? scale + j : nullptr; };
  for (; j + kTileVectors * kLanes <= cols; j += kTileVectors * kLanes) {
    gemm_panel<kKind, kTransposed, kTileVectors>(a, {b.data + j, b.ld}, c + j, ldc, rows, terms, columns_scale());
  }
  for (; j < cols; j += kLanes) {
    gemm_panel<kKind, kTransposed, 1>(a, {b.data + j, b.ld}, c + j, ldc, rows, terms, columns_scale());
  }
}

}  // namespace ms::tensor::MS_ISA
