// The matmul of a weight's gradient, c[M,N] (+)= a[K,M]' b[K,N] of bf16, for processors with AVX512_BF16 (pairs.h). In
// both operands neighbouring terms are one row apart: packing pairs them, and nothing is transposed, which is where a
// general matmul loses its time. MatmulCache tries this first.
//
// b is packed in panels of kCols columns. A task is a block of c whose sums stay in the second-level cache while the
// terms pass in slices of kPairs pairs; the slice of a is packed in panels of kRows rows of c. The order of an
// element's sum depends on nothing but K.
#include "tensor/cpu/pairs.h"

namespace ms::tensor::MS_ISA {

#if defined(__AVX512BF16__)

namespace {

constexpr int kRows = 8, kVectors = 3;  // 24 sums, 3 of b and a broadcast in 32 registers
constexpr Index kCols = kVectors * kLanes;
constexpr Index kPairs = 256;  // longer slices bring little, shorter ones read and write c more often
constexpr Index kBlockRows = 12 * kRows, kBlockCols = 16 * kCols;
constexpr Index kPackedPairs = 16;  // of b at a time: the rows that they come from stay in the caches

// Loads the first n of up to kLanes elements.
MS_INLINE Vu bits(const bfloat16* x, Index n) {
  Vh half{};
  if (n >= kLanes) {
    __builtin_memcpy(&half, x, sizeof half);
  } else if (n > 0) {
    __builtin_memcpy(&half, x, static_cast<std::size_t>(n) * 2);
  }
  return __builtin_convertvector(half, Vu);
}
// Returns rows 2k and 2k + 1 of x[rows][..] from column j on, n columns of them, as pairs.
MS_INLINE Vu paired(const bfloat16* x, Index ld, Index rows, Index k, Index j, Index n) {
  const Vu odd = 2 * k + 1 < rows ? bits(x + (2 * k + 1) * ld + j, n) : Vu{};
  return bits(x + 2 * k * ld + j, n) | odd << 16;
}

// Packs pairs [first, end) of b, read row by row, into out[panel][pairs][kCols].
void pack_right(Pair* out, const Tensor& b, Index pairs, Index first, Index end) {
  const auto* x = row_of<bfloat16>(b, 0);
  for (Index j = 0; j < b.cols; j += kCols) {
    for (Index k = first; k < end; ++k) {
      for (int v = 0; v < kVectors; ++v) {
        store_pairs(out + j * pairs + k * kCols + v * kLanes,
                    paired(x, b.ld, b.rows, k, j + v * kLanes, b.cols - j - v * kLanes));
      }
    }
  }
}

// Packs pairs [first, first + pairs) of a's columns [i0, i0 + rows), which are rows of c, into
// out[panel][pairs][kRows].
void pack_left(Pair* out, const Tensor& a, Index i0, Index rows, Index first, Index pairs) {
  static_assert(kLanes == 2 * kRows && kBlockRows % kLanes == 0);
  const auto* x = row_of<bfloat16>(a, 0);
  for (Index i = 0; i < rows; i += kLanes) {
    Pair* panel = out + i * pairs;
    for (Index k = 0; k < pairs; ++k) {
      const Vu both = paired(x, a.ld, a.rows, first + k, i0 + i, a.cols - i0 - i);
      __builtin_memcpy(panel + k * kRows, &both, kRows * sizeof(Pair));
      __builtin_memcpy(panel + (pairs + k) * kRows, reinterpret_cast<const char*>(&both) + kRows * sizeof(Pair),
                       kRows * sizeof(Pair));
    }
  }
}

// A thread's working memory: a packed slice of a, and the sums of a block of c without gaps. (In c itself the rows of a
// tile may be whole pages apart, so that they compete for the same few lines of the nearest cache.)
struct Workspace {
  explicit Workspace(float* memory) : left(reinterpret_cast<Pair*>(memory)), sums(memory + kBlockRows * kPairs) {}
  static constexpr Index kFloats = kBlockRows * (kPairs + kBlockCols);
  Pair* left;
  float* sums;  // [kBlockRows][kBlockCols]
};

template <class C>
void block(const Matmul& op, const Pair* right, const Workspace& at, Index i0, Index j0) {
  const Index pairs = (op.a.rows + 1) / 2;
  const Index rows = least(kBlockRows, op.c.rows - i0), cols = least(kBlockCols, op.c.cols - j0);
  for (Index first = 0; first < pairs; first += kPairs) {
    const Index slice = least(kPairs, pairs - first);
    pack_left(at.left, op.a, i0, rows, first, slice);
    for (Index j = 0; j < cols; j += kCols) {
      const PairOperand b{right + (j0 + j) * pairs + first * kCols, kCols};
      for (Index i = 0; i < rows; i += kRows) {
        const PairOperand a{at.left + i * slice, kRows};
        float* sums = at.sums + i * kBlockCols + j;
        if (first == 0) {
          dot_tile<GemmKind::set, true, kRows, kVectors>(a, b, sums, kBlockCols, slice, nullptr);
        } else {
          dot_tile<GemmKind::add, true, kRows, kVectors>(a, b, sums, kBlockCols, slice, nullptr);
        }
      }
    }
  }
  for (Index i = 0; i < rows; ++i) {
    C* c = row_of<C>(op.c, i0 + i) + j0;
    const float* sums = at.sums + i * kBlockCols;
    each_vector(cols, [&](Index j, auto lanes) {
      store(c + j, op.accumulate ? load(c + j, lanes) + load(sums + j) : load(sums + j), lanes);
    });
  }
}

// Computes all blocks of c. Any thread may take any of them, as they share nothing. Blocks that read the same part of b
// follow each other.
void share(const Matmul& op, Pair* packed_b, float* memory) {
  const Index pairs = (op.a.rows + 1) / 2;
  const Index down = ceil_div(op.c.rows, kBlockRows), tasks = down * ceil_div(op.c.cols, kBlockCols);
  each_chunk(ceil_div(pairs, kPackedPairs), op.b.numel(), [&](Index chunk) {
    const Index first = chunk * kPackedPairs;
    pack_right(packed_b, op.b, pairs, first, least(pairs, first + kPackedPairs));
  });
  each_task(tasks, op.c.numel() * pairs, [&](Index task, int thread) {
    with_type(op.c.dtype, [&](auto type) {
      block<decltype(type)>(op, packed_b, Workspace(memory + Workspace::kFloats * thread), task % down * kBlockRows,
                            task / down * kBlockCols);
    });
  });
}

}  // namespace

bool weight_gradient(const Matmul& op) {
  if (!op.transpose_a || op.transpose_b || op.bias || op.a.dtype != DType::bf16 || op.gelu_y || op.gelu_x) return false;
  // Packs as few columns of b at a time as keep the team busy: they are then still in the caches when they are read.
  const Index threads = team_threads(), wanted = ceil_div(4 * threads, ceil_div(op.c.rows, kBlockRows));
  const Index together = least(wanted * kBlockCols, ceil_div(op.c.cols, kCols) * kCols);
  const Scratch packed_b(together * ((op.a.rows + 1) / 2)), memory(Workspace::kFloats * threads);
  for (Index j = 0; j < op.c.cols; j += together) {
    Matmul part = op;
    const Index cols = least(together, op.c.cols - j);
    part.c.data += j * size_of(op.c.dtype);
    part.b.data += j * size_of(op.b.dtype);
    part.c.cols = part.b.cols = cols;
    share(part, reinterpret_cast<Pair*>(packed_b.data()), memory.data());
  }
  return true;
}

#else

bool weight_gradient(const Matmul&) { return false; }

#endif

}  // namespace ms::tensor::MS_ISA
