// How the plain ops share their work: by pieces whose bounds depend on the shape alone, so that results do not depend
// on the number of threads. Every piece has one owner; partial sums are per piece and are added in the order of the
// pieces.
#pragma once

#include <omp.h>

#include "tensor/cpu/kernels.h"
#include "tensor/cpu/simd.h"

namespace ms::tensor::MS_ISA {

using Index = std::int64_t;

// Below this many elements a team costs more than it brings.
inline constexpr Index kParallelElements = 1 << 15;
// Elements of a piece of flat memory: a few pages, many vectors.
inline constexpr Index kPieceElements = 1 << 13;

MS_INLINE constexpr Index pieces_of(Index n, Index piece) { return (n + piece - 1) / piece; }
MS_INLINE constexpr Index least(Index a, Index b) { return a < b ? a : b; }
MS_INLINE constexpr Index most(Index a, Index b) { return a > b ? a : b; }

// body(piece) for piece in [0, count), `elements` being the work of all of them.
template <class Body>
inline void each_piece(Index count, Index elements, Body&& body) {
#pragma omp parallel for schedule(static) if (elements >= kParallelElements && count > 1)
  for (Index i = 0; i < count; ++i) body(i);
}

template <class T>
MS_INLINE T* row_of(const Tensor& x, Index row) {
  return reinterpret_cast<T*>(x.data) + row * x.ld;
}

// body(row, first column, columns) covering rows x cols; `flat` when every tensor of the op is contiguous: the rows are
// then one long row.
template <class Body>
inline void each_span(Index rows, Index cols, bool flat, Body&& body) {
  if (flat || rows == 1) {
    const Index n = rows * cols;
    each_piece(pieces_of(n, kPieceElements), n, [&](Index piece) {
      const Index begin = piece * kPieceElements;
      body(Index{0}, begin, least(kPieceElements, n - begin));
    });
  } else {
    each_piece(rows, rows * cols, [&](Index row) { body(row, Index{0}, cols); });
  }
}
MS_INLINE bool is_flat(const Tensor& x) { return x.ld == x.cols || x.rows == 1; }

// Rows in blocks, for sums over rows: at most kRowBlocks partial sums, of blocks of at least kBlockRows rows.
struct RowBlocks {
  static constexpr Index kRowBlocks = 64, kBlockRows = 32;
  explicit RowBlocks(Index rows_in)
      : rows(rows_in), block(most(kBlockRows, pieces_of(rows_in, kRowBlocks))), count(pieces_of(rows_in, block)) {}
  Index begin(Index i) const { return i * block; }
  Index end(Index i) const { return least(rows, (i + 1) * block); }
  Index rows, block, count;
};

class Scratch {
 public:
  explicit Scratch(Index floats) : data_(static_cast<float*>(scratch_allocate(static_cast<std::size_t>(floats) * 4))) {}
  ~Scratch() { scratch_free(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  float* data() const { return data_; }

 private:
  float* data_;
};

// out[c] += the blocks' partial sums [count][cols] in order.
inline void add_partials(float* out, const float* partials, Index count, Index cols) {
  each_piece(pieces_of(cols, kPieceElements / 8), count * cols, [&](Index piece) {
    const Index begin = piece * (kPieceElements / 8);
    each_vector(least(kPieceElements / 8, cols - begin), [&](Index i, auto lanes) {
      Vf total = load(out + begin + i, lanes);
      for (Index block = 0; block < count; ++block) total += load(partials + block * cols + begin + i, lanes);
      store(out + begin + i, total, lanes);
    });
  });
}

// function(T{}) with the element type of a tensor that is f32 or bf16.
template <class Function>
inline void with_type(DType dtype, Function&& function) {
  if (dtype == DType::bf16) {
    function(bfloat16{});
  } else {
    function(float{});
  }
}

}  // namespace ms::tensor::MS_ISA
