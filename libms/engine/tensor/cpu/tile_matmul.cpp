// The matmuls of AMX_BF16, on tiles (tiles.h) in blocks (blocked_matmul.h): bf16, and f32 in parts of bf16. oneDNN 2.6
// chooses kernels and blocks by the number of rows there, and bits with them.
//
// An f32 x is the sum of three bf16: x1 = x rounded, x2 = x - x1 rounded, x3 = x - x1 - x2, which is exact. Of the nine
// pairs of parts of two numbers the three smallest are left out: together they are below 2^-24 of the whole, as the
// rounding of one f32 multiplication is. Six pairs on tiles take 6/16 of the time of f32 instructions, and the sum
// rounds less often. (NVIDIA's cuBLAS does the same with nine pairs and calls it BF16x9; oneDNN and MKL know it as
// bf16x3 with fewer.) Different from f32 instructions: infinities and |x| > 3.39e38 give NaN, and parts below 2^-126
// are taken for 0, so that |x| < 2^-102 has fewer than 24 bits.
#include "tensor/cpu/blocked_matmul.h"
#include "tensor/cpu/tiles.h"

#if defined(MS_TILES)

namespace ms::tensor::MS_ISA {
namespace {

// 16 columns of pairs of one row, or of two, for each part.
template <class Element>
inline constexpr int kParts = sizeof(Element) == 4 ? 3 : 1;
template <class Element>
struct PairsOf {
  Vu part[kParts<Element>];
};

// The parts of `first` and `second`, side by side.
MS_INLINE PairsOf<float> in_parts(Vf first, Vf second) {
  PairsOf<float> pairs;
#pragma GCC unroll 3
  for (Vu& part : pairs.part) {
    const Vw halves = narrow(first, second);
    part = reinterpret_cast<Vu>(halves);
    Vh low, high;
    __builtin_memcpy(&low, &halves, sizeof low);
    __builtin_memcpy(&high, reinterpret_cast<const char*>(&halves) + sizeof low, sizeof high);
    first -= widen(low), second -= widen(high);
  }
  return pairs;
}

// Loads pairs of neighbours in a row: the first `terms` elements, at most 32; the others are 0.
MS_INLINE PairsOf<bfloat16> load_row(const bfloat16* x, Index terms) {
  PairsOf<bfloat16> pairs{};
  if (terms >= 2 * kTile) {
    __builtin_memcpy(&pairs, x, sizeof pairs);
  } else {
    __builtin_memcpy(&pairs, x, static_cast<std::size_t>(terms) * 2);
  }
  return pairs;
}
MS_INLINE PairsOf<float> load_row(const float* x, Index terms) {
  if (terms >= 2 * kTile) return in_parts(load(x), load(x + kTile));
  Vf halves[2]{};
  __builtin_memcpy(halves, x, static_cast<std::size_t>(terms) * 4);
  return in_parts(halves[0], halves[1]);
}
// Loads pairs from rows 2k and 2k + 1 of x[rows][..]: n columns from j on, at most 16. A row that is not there is
// zeros.
MS_INLINE PairsOf<bfloat16> load_two_rows(const bfloat16* x, Index ld, Index rows, Index k, Index j, Index n) {
  if (2 * k >= rows) return {};
  return {paired_rows(x, ld, rows, k, j, n)};
}
MS_INLINE PairsOf<float> load_two_rows(const float* x, Index ld, Index rows, Index k, Index j, Index n) {
  const auto of_row = [&](Index row) {
    const float* from = x + row * ld + j;
    return row >= rows || n <= 0 ? Vf{} : n >= kTile ? load(from) : load(from, Part{static_cast<int>(n)});
  };
  PairsOf<float> pairs = in_parts(of_row(2 * k), of_row(2 * k + 1));
  for (Vu& part : pairs.part) part = pair_up(reinterpret_cast<Vw>(part));
  return pairs;
}

// Two tiles of rows by two of columns. A step of a panel is [part][tile].
template <class ElementType>
struct TileKernel {
  using Element = ElementType;
  using Packed = Pair;
  using Session = TileSession;
  static constexpr int kCount = kParts<Element>;
  static constexpr Index kPairs = kTile * kTile;  // of a tile
  static constexpr Index kRows = 2 * kTile, kCols = 2 * kTile, kTerms = 2 * kTile, kLeft = 2 * kPairs * kCount,
                         kRight = kLeft;
  // A slice of a panel of b takes 24 KiB of the nearest cache, of 48 KiB; rows of a 1.25 MiB of a second-level cache of
  // 2 MiB.
  static constexpr Index kSliceSteps = kCount == 1 ? 8 : 3, kBlockRows = 256, kBlockCols = 512, kKeptLeft = 5 << 15,
                         kPackSteps = 1;

  static constexpr Index kAhead = 4;  // steps: the processor does not see that 16 rows are read along each

  // Packs one tile of each part. If terms lie side by side in x, its rows are rows of x from `row` on, otherwise
  // columns of x. A left tile wants the pairs of a row side by side, a right one those of a column below each other.
  template <bool kLeftTile>
  static void pack_tile(Pair* out, const Tensor& x, bool side_by_side, Index row, Index step) {
    PairsOf<Element> square[kTile];
    const auto* data = row_of<Element>(x, 0);
    for (Index i = 0; i < kTile; ++i) {
      if (!side_by_side) {
        square[i] = load_two_rows(data, x.ld, x.rows, step * kTile + i, row, x.cols - row);
      } else if (row + i < x.rows) {
        const Element* from = data + (row + i) * x.ld + step * kTerms;
        __builtin_prefetch(from + kAhead * kTerms);
        square[i] = load_row(from, x.cols - step * kTerms);
      } else {
        square[i] = {};
      }
    }
    for (int part = 0; part < kCount; ++part, out += 2 * kPairs) {
      Vf turned[kTile];
      for (Index i = 0; i < kTile; ++i) turned[i] = reinterpret_cast<Vf>(square[i].part[part]);
      if (side_by_side != kLeftTile) transpose(turned);
      for (Index i = 0; i < kTile; ++i) store_pairs(out + i * kTile, reinterpret_cast<Vu>(turned[i]));
    }
  }

  static void pack_left(Pair* out, const Matmul& op, Index i0, Index rows, Index first, Index steps) {
    const auto pack = [&](Index i, Index step) {
      Pair* at = out + (i / kRows * steps + step) * kLeft;
      pack_tile<true>(at, op.a, !op.transpose_a, i0 + i, first + step);
      pack_tile<true>(at + kPairs, op.a, !op.transpose_a, i0 + i + kTile, first + step);
    };
    // Along the rows of a, which are terms if it is transposed.
    if (op.transpose_a) {
      for (Index step = 0; step < steps; ++step) {
        for (Index i = 0; i < rows; i += kRows) pack(i, step);
      }
    } else {
      for (Index i = 0; i < rows; i += kRows) {
        for (Index step = 0; step < steps; ++step) pack(i, step);
      }
    }
  }

  static void pack_right(Pair* out, const Matmul& op, Index j, Index first, Index steps) {
    for (Index step = first; step < first + steps; ++step, out += kRight) {
      pack_tile<false>(out, op.b, op.transpose_b, j, step);
      pack_tile<false>(out + kPairs, op.b, op.transpose_b, j + kTile, step);
    }
  }

  template <bool kAdd, class Beside>
  static void multiply(const Pair* left, const Pair* right, float* sums, Index steps, Index rows, Beside&& beside) {
    const TilesOf a{left, kPairs, kLeft, kTile * 4}, b{right, kPairs, kRight, kTile * 4};
    const SumsOf c{sums, kTile * kCols, kCols};
    tile_blocks<kAdd, 2, kCount>(a, steps * kLeft, b, c, steps, ceil_div(rows, kRows), beside);
  }
};

}  // namespace

bool matmul(const Matmul& op, MatmulDone done) {
  with_type(op.a.dtype, [&](auto type) { BlockedMatmul<TileKernel<decltype(type)>>(op, done).run(); });
  return true;
}

}  // namespace ms::tensor::MS_ISA

#endif
