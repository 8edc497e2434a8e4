// Splits the work of the CPU kernels into chunks whose bounds depend on the shape alone, so that results do not depend
// on the number of threads. One thread owns a chunk; partial sums are per chunk and are added in chunk order.
#pragma once

#include "tensor/cpu/kernels.h"
#include "tensor/cpu/simd.h"
#include "tensor/team.h"

namespace ms::tensor::MS_ISA {

using Index = std::int64_t;

// Below this many elements a team costs more than it saves.
inline constexpr Index kParallelElements = 1 << 15;
// Elements of a chunk of flat memory: a few pages, many vectors.
inline constexpr Index kChunkElements = 1 << 13;

MS_INLINE constexpr Index ceil_div(Index n, Index chunk) { return (n + chunk - 1) / chunk; }
MS_INLINE constexpr Index least(Index a, Index b) { return a < b ? a : b; }
MS_INLINE constexpr Index most(Index a, Index b) { return a > b ? a : b; }

// Calls body(chunk) for chunk in [0, count); `elements` is the work of all of them.
template <class Body>
inline void each_chunk(Index count, Index elements, Body&& body) {
  share_work(count, elements >= kParallelElements ? even_part(count) : count, [&](Index begin, Index end, int) {
    for (Index i = begin; i < end; ++i) body(i);
  });
}

// Calls body(task, thread) for tasks in [0, count), which may be unequal; `work` is that of all of them.
template <class Body>
inline void each_task(Index count, Index work, Body&& body) {
  share_work(count, work >= kParallelElements ? 1 : count, [&](Index begin, Index end, int thread) {
    for (Index task = begin; task < end; ++task) body(task, thread);
  });
}

template <class T>
MS_INLINE T* row_of(const Tensor& x, Index row) {
  return reinterpret_cast<T*>(x.data) + row * x.ld;
}

// Calls body(row, first column, columns) so that the calls cover rows x cols. `flat` tells that every tensor of the op
// is contiguous: the rows are then one long row.
template <class Body>
inline void each_span(Index rows, Index cols, bool flat, Body&& body) {
  if (flat || rows == 1) {
    const Index n = rows * cols;
    each_chunk(ceil_div(n, kChunkElements), n, [&](Index chunk) {
      const Index begin = chunk * kChunkElements;
      body(Index{0}, begin, least(kChunkElements, n - begin));
    });
  } else {
    each_chunk(rows, rows * cols, [&](Index row) { body(row, Index{0}, cols); });
  }
}
MS_INLINE bool is_flat(const Tensor& x) { return x.ld == x.cols || x.rows == 1; }

// Blocks of rows, for sums over rows: at most kRowBlocks partial sums, of blocks of at least kBlockRows rows.
struct RowBlocks {
  static constexpr Index kRowBlocks = 64, kBlockRows = 32;
  explicit RowBlocks(Index rows_in)
      : rows(rows_in), block(most(kBlockRows, ceil_div(rows_in, kRowBlocks))), count(ceil_div(rows_in, block)) {}
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

// Adds up the blocks' partial sums [count][cols] in block order, to out[c] if that accumulates.
template <class T>
inline void add_partials(T* out, const float* partials, Index count, Index cols, bool accumulate) {
  each_chunk(ceil_div(cols, kChunkElements / 8), count * cols, [&](Index chunk) {
    const Index begin = chunk * (kChunkElements / 8);
    each_vector(least(kChunkElements / 8, cols - begin), [&](Index i, auto lanes) {
      Vf total = accumulate ? load(out + begin + i, lanes) : Vf{};
      for (Index block = 0; block < count; ++block) total += load(partials + block * cols + begin + i, lanes);
      store(out + begin + i, total, lanes);
    });
  });
}

// Calls function(T{}) with the element type of a tensor that is f32 or bf16.
template <class Function>
inline void with_type(DType dtype, Function&& function) {
  if (dtype == DType::bf16) {
    function(bfloat16{});
  } else {
    function(float{});
  }
}

}  // namespace ms::tensor::MS_ISA
