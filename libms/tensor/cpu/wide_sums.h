// Sums in f64 by pieces of memory whose bounds depend on the size alone.
#pragma once

#include "tensor/cpu/parallel.h"

namespace ms::tensor::MS_ISA {

inline constexpr Index kSumPieces = 256, kSumPieceElements = 1 << 14;

template <bool kSquare>
inline double sum_f32(const float* x, Index n) {
  Vd totals[2] = {};
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int half = 0; half < 2; ++half) {
      VfHalf part;
      __builtin_memcpy(&part, x + i + half * (kLanes / 2), sizeof part);
      const Vd wide = __builtin_convertvector(part, Vd);
      totals[half] += kSquare ? wide * wide : wide;
    }
  }
  double rest = 0;
  for (; i < n; ++i)
    rest += kSquare ? static_cast<double>(x[i]) * static_cast<double>(x[i]) : static_cast<double>(x[i]);
  return sum(totals[0]) + sum(totals[1]) + rest;
}
inline double sum_f64(const double* x, Index n) {
  double total = 0;
  for (Index i = 0; i < n; ++i) total += x[i];
  return total;
}

// The sum of piece_sum(first element, elements), in order of the pieces; a double, or what adds up like one.
template <class PieceSum>
inline auto sum_flat(Index n, PieceSum&& piece_sum) {
  using Sum = decltype(piece_sum(Index{0}, n));
  Sum partials[kSumPieces];
  const Index size = most(kSumPieceElements, pieces_of(n, kSumPieces));
  const Index count = pieces_of(n, size);
  each_piece(count, n, [&](Index i) { partials[i] = piece_sum(i * size, least(size, n - i * size)); });
  Sum total{};
  for (Index i = 0; i < count; ++i) total += partials[i];
  return total;
}

}  // namespace ms::tensor::MS_ISA
