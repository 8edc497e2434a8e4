// The matmuls of each instruction set that are not oneDNN's (cpu_matmul.cpp decides), by blocked_matmul.h. Those of AMX
// are in tile_matmul.cpp.
// - AVX512_BF16: the gradient of a weight, c[M,N] (+)= a[K,M]' b[K,N] of bf16. In both operands neighbouring terms are
//   one row apart: packing pairs them, and nothing is transposed, which is where a general matmul loses its time.
// - Every instruction set: f32, for those below AVX-512, where oneDNN splits a sum depending on the whole shape, and in
//   grouped matmuls; bf16, widened as it is packed, for those without AVX512_BF16.
#include "tensor/cpu/blocked_matmul.h"
#include "tensor/cpu/gemm.h"
#include "tensor/cpu/tiles.h"

#if !defined(MS_TILES)

namespace ms::tensor::MS_ISA {
namespace {

struct NoSession {
  NoSession() {}  // not trivial, so that holding one is no unused variable
};

// f32 in registers of kRows x kVectors, of operands in T.
template <class T>
struct FloatKernel {
  using Element = T;
  using Packed = float;
  using Session = NoSession;
  static constexpr Index kRows = kTileRows, kCols = kTileVectors * kLanes, kTerms = 1, kLeft = kRows, kRight = kCols;
  static constexpr Index kSliceSteps = 256, kBlockRows = 16 * kRows, kBlockCols = 512 / kCols * kCols, kKeptLeft = 0,
                         kPackSteps = 32;

  static void pack_left(float* out, const Matmul& op, Index i0, Index rows, Index first, Index steps) {
    const T* x = row_of<T>(op.a, 0);
    const Index row_step = op.transpose_a ? 1 : op.a.ld, term_step = op.transpose_a ? op.a.ld : 1;
    for (Index i = 0; i < rows; i += kRows) {
      for (Index k = 0; k < steps; ++k) {
        const T* from = x + (i0 + i) * row_step + (first + k) * term_step;
        for (Index r = 0; r < kRows; ++r) *out++ = i + r < rows ? get(from + r * row_step) : 0.0F;
      }
    }
  }

  static void pack_right(float* out, const Matmul& op, Index j, Index first, Index steps) {
    const T* x = row_of<T>(op.b, 0);
    const Index cols = least(kCols, op.c.cols - j);
    if (op.transpose_b) {
      // Few rows of b at a time: rows that lie whole pages apart compete for the same lines of the nearest cache.
      for (Index n = 0; n < kCols; n += kLanes) {
        for (Index k = 0; k < steps; k += kLanes) {
          const int terms = static_cast<int>(least(kLanes, steps - k));
          Vf square[kLanes];
          for (Index i = 0; i < kLanes; ++i) {
            const T* row = x + (j + n + i) * op.b.ld + first + k;
            square[i] = n + i >= cols ? Vf{} : terms == kLanes ? load(row) : load(row, Part{terms});
          }
          transpose(square);
          for (Index i = 0; i < terms; ++i) store(out + (k + i) * kCols + n, square[i]);
        }
      }
      return;
    }
    for (Index k = first; k < first + steps; ++k, out += kCols) {
      const T* row = x + k * op.b.ld + j;
      for (Index n = 0; n < kCols; n += kLanes) {
        store(out + n, n + kLanes <= cols ? load(row + n) : load(row + n, Part{static_cast<int>(most(0, cols - n))}));
      }
    }
  }

  template <bool kAdd, class Beside>
  static void multiply(const float* left, const float* right, float* sums, Index steps, Index rows, Beside&&) {
    for (Index i = 0; i < rows; i += kRows, left += steps * kLeft, sums += kRows * kCols) {
      gemm_tile<kAdd ? GemmKind::add : GemmKind::set, true, kRows, kTileVectors>({left, kRows}, {right, kCols}, sums,
                                                                                 kCols, steps, nullptr);
    }
  }
};

// The same sums for few rows, as text is generated with them: b is read once, and not packed.
template <class T, class C, int kRows>
void multiply_few_rows(const Matmul& op, MatmulDone done) {
  constexpr Index kChunkCols = 8 * kLanes;
  const Index terms = op.a.cols;
  each_chunk(ceil_div(op.c.cols, kChunkCols), op.b.numel(), [&](Index chunk) {
    const Matmul block = matmul_block(op, 0, chunk * kChunkCols, {kRows, kChunkCols});
    each_vector(block.c.cols, [&](Index j, auto lanes) {
      const Index rows = least(kLanes, block.b.rows - j);
      Vf sums[kRows] = {};
      for (Index k = 0; k < terms; k += kLanes) {
        const int count = static_cast<int>(least(kLanes, terms - k));
        Vf square[kLanes];
        for (Index i = 0; i < kLanes; ++i) {
          const T* row = row_of<T>(block.b, j + least(i, rows - 1)) + k;
          square[i] = count == kLanes ? load(row) : load(row, Part{count});
        }
        transpose(square);
        for (int i = 0; i < count; ++i) {
          for (int r = 0; r < kRows; ++r) sums[r] += splat(get(row_of<T>(op.a, r) + k + i)) * square[i];
        }
      }
      for (int r = 0; r < kRows; ++r) {
        C* c = row_of<C>(block.c, r) + j;
        if (block.bias) sums[r] += load(row_of<T>(block.bias, 0) + j, lanes);
        store(c, block.accumulate ? load(c, lanes) + sums[r] : sums[r], lanes);
      }
    });
    done(block);
  });
}

template <class T>
void multiply_floats(const Matmul& op, MatmulDone done) {
  if (op.transpose_a || !op.transpose_b || op.c.rows > 4) return BlockedMatmul<FloatKernel<T>>(op, done).run();
  with_type(op.c.dtype, [&](auto type) {
    using C = decltype(type);
    switch (op.c.rows) {
      case 1: return multiply_few_rows<T, C, 1>(op, done);
      case 2: return multiply_few_rows<T, C, 2>(op, done);
      case 3: return multiply_few_rows<T, C, 3>(op, done);
      default: return multiply_few_rows<T, C, 4>(op, done);
    }
  });
}

#if defined(__AVX512BF16__)

// Pairs of bf16, of weight gradients only.
struct PairKernel {
  using Element = bfloat16;
  using Packed = Pair;
  using Session = NoSession;
  static constexpr int kVectors = 3;  // 24 sums, 3 of b and a broadcast in 32 registers
  static constexpr Index kRows = 8, kCols = kVectors * kLanes, kTerms = 2, kLeft = kRows, kRight = kCols;
  // Longer slices bring little, shorter ones read and write sums more often. The rows of b that a few steps come from
  // stay in the caches.
  static constexpr Index kSliceSteps = 256, kBlockRows = 12 * kRows, kBlockCols = 16 * kCols, kKeptLeft = 0,
                         kPackSteps = 16;

  // Two panels at a time: a vector of a's columns, which are rows of c.
  static void pack_left(Pair* out, const Matmul& op, Index i0, Index rows, Index first, Index steps) {
    static_assert(kLanes == 2 * kRows);
    const auto* x = row_of<bfloat16>(op.a, 0);
    for (Index i = 0; i < rows; i += kLanes) {
      Pair* panel = out + i * steps;
      for (Index k = 0; k < steps; ++k) {
        const Vu both = paired_rows(x, op.a.ld, op.a.rows, first + k, i0 + i, op.a.cols - i0 - i);
        __builtin_memcpy(panel + k * kRows, &both, kRows * sizeof(Pair));
        if (i + kRows >= rows) continue;
        __builtin_memcpy(panel + (steps + k) * kRows, reinterpret_cast<const char*>(&both) + kRows * sizeof(Pair),
                         kRows * sizeof(Pair));
      }
    }
  }

  static void pack_right(Pair* out, const Matmul& op, Index j, Index first, Index steps) {
    const auto* x = row_of<bfloat16>(op.b, 0);
    for (Index k = first; k < first + steps; ++k, out += kCols) {
      for (Index v = 0; v < kCols; v += kLanes) {
        store_pairs(out + v, paired_rows(x, op.b.ld, op.b.rows, k, j + v, op.b.cols - j - v));
      }
    }
  }

  template <bool kAdd, class Beside>
  static void multiply(const Pair* left, const Pair* right, float* sums, Index steps, Index rows, Beside&&) {
    for (Index i = 0; i < rows; i += kRows, left += steps * kLeft, sums += kRows * kCols) {
      dot_tile<kAdd ? GemmKind::add : GemmKind::set, true, kRows, kVectors>({left, kRows}, {right, kCols}, sums, kCols,
                                                                            steps, nullptr);
    }
  }
};

#endif

}  // namespace

bool matmul(const Matmul& op, MatmulDone done) {
  if (op.a.dtype == DType::f32) {
    multiply_floats<float>(op, done);
    return true;
  }
#if defined(__AVX512BF16__)
  if (!op.transpose_a || op.transpose_b || op.bias || op.gelu_y || op.gelu_x) return false;
  BlockedMatmul<PairKernel>(op, done).run();
#else
  multiply_floats<bfloat16>(op, done);
#endif
  return true;
}

}  // namespace ms::tensor::MS_ISA

#endif
