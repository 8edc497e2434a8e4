// Sums in f64 by chunks of memory whose bounds depend on the size alone.
#pragma once

#include "tensor/cpu/parallel.h"

namespace ms::tensor::MS_ISA {

inline constexpr Index kSumChunks = 256, kSumChunkElements = 1 << 14;

template <bool kSquare, class T>
inline double sum_wide(const T* x, Index n) {
  Vd totals[2] = {};
  Index i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vf both = load(x + i);
    for (int half = 0; half < 2; ++half) {
      VfHalf part;
      __builtin_memcpy(&part, reinterpret_cast<const char*>(&both) + half * sizeof part, sizeof part);
      const Vd wide = __builtin_convertvector(part, Vd);
      totals[half] += kSquare ? wide * wide : wide;
    }
  }
  double rest = 0;
  for (; i < n; ++i) {
    const auto wide = static_cast<double>(get(x + i));
    rest += kSquare ? wide * wide : wide;
  }
  return sum(totals[0]) + sum(totals[1]) + rest;
}
inline double sum_f64(const double* x, Index n) {
  double total = 0;
  for (Index i = 0; i < n; ++i) total += x[i];
  return total;
}

// Returns the sum of chunk_sum(first element, elements) in chunk order; its type is double or sums like one.
template <class ChunkSum>
inline auto sum_flat(Index n, ChunkSum&& chunk_sum) {
  using Sum = decltype(chunk_sum(Index{0}, n));
  Sum partials[kSumChunks];
  const Index size = most(kSumChunkElements, ceil_div(n, kSumChunks));
  const Index count = ceil_div(n, size);
  each_chunk(count, n, [&](Index i) { partials[i] = chunk_sum(i * size, least(size, n - i * size)); });
  Sum total{};
  for (Index i = 0; i < count; ++i) total += partials[i];
  return total;
}

}  // namespace ms::tensor::MS_ISA
