// A matmul in blocks of its output, for the register kernels of all instruction sets (matmul.cpp). Both operands are
// packed: b once for the whole team, in panels of kCols columns; a by the thread that computes a block, in panels of
// kRows rows. K passes in slices, so that a panel of b stays in the nearest cache and a block's sums in the second.
// Sums are f32 between slices, as they are in registers, so the order of an element's sum depends on nothing but K: not
// on blocks, threads, or what other rows and columns there are.
//
// A Kernel has:
//   Element                 the type of a, b and bias
//   Packed                  32 bits: an f32, or a pair of bf16
//   kRows, kCols            of the output that the registers hold
//   kTerms                  terms of a step of K; the last step is filled up with zeros
//   kLeft, kRight           Packed of a step in a panel of a and of b
//   kSliceSteps             the most steps of a slice
//   kBlockRows, kBlockCols  the largest block: whole panels
//   kKeptLeft               Packed of a that a thread keeps for its next block; 0 to pack it slice by slice
//   kPackSteps              steps of b that a thread packs at a time
//   pack_left(out, op, i, rows, first, steps)    rows [i, i + rows) of op(a), as [panel][steps][kLeft]
//   pack_right(out, op, j, first, steps)         columns [j, j + kCols) of op(b), as [steps][kRight]
//   multiply<kAdd>(left, right, sums, steps, rows, beside)   sums[rows][kCols] (+)= left right, for all panels of left;
//                           with rows of a that are kept, calls beside(panel, step) meanwhile
//   Session                 held by a thread while it calls multiply()
#pragma once

#include "tensor/cpu/parallel.h"
#include "tensor/matmul_blocks.h"

namespace ms::tensor::MS_ISA {

inline Index terms_of(const Matmul& op) { return op.transpose_a ? op.a.rows : op.a.cols; }

template <class Kernel>
class BlockedMatmul {
 public:
  BlockedMatmul(const Matmul& op, MatmulDone done)
      : op_(op),
        done_(done),
        threads_(team_threads()),
        steps_(ceil_div(terms_of(op), Kernel::kTerms)),
        slice_(ceil_div(steps_, ceil_div(steps_, Kernel::kSliceSteps))),
        chunk_(slice_),
        block_rows_(least(Kernel::kBlockRows, whole_panels(op.c.rows, Kernel::kRows))),
        block_cols_(least(Kernel::kBlockCols, whole_panels(op.c.cols, Kernel::kCols))) {
    if constexpr (Kernel::kKeptLeft > 0) {
      const Index fit = Kernel::kKeptLeft / (steps_ * Kernel::kLeft) * Kernel::kRows;
      const Index rows = most(Kernel::kBlockRows, least(fit, 4 * Kernel::kBlockRows));
      block_rows_ = whole_panels(ceil_div(op.c.rows, ceil_div(op.c.rows, rows)), Kernel::kRows);
    }
    // Few rows use a packed element of b but once or twice: it should still be in the second cache then.
    if (down() == 1) {
      constexpr Index kNear = 1 << 17;  // floats
      const Index panels = most(1, kNear / (steps_ * Kernel::kRight));
      block_cols_ = least(block_cols_, panels * Kernel::kCols);
    }
    // Smaller blocks if there are too few to keep the team busy.
    while (down() * ceil_div(op.c.cols, block_cols_) < 3 * threads_) {
      if (block_cols_ >= 2 * block_rows_ && block_cols_ > Kernel::kCols) {
        block_cols_ = whole_panels(block_cols_ / 2, Kernel::kCols);
      } else if (block_rows_ > Kernel::kRows) {
        block_rows_ = whole_panels(block_rows_ / 2, Kernel::kRows);
      } else {
        break;
      }
    }
    if constexpr (Kernel::kKeptLeft > 0) {
      const Index slices = Kernel::kKeptLeft / (block_rows_ / Kernel::kRows * slice_ * Kernel::kLeft);
      chunk_ = slice_ * most(1, least(slices, ceil_div(steps_, slice_)));
    }
  }

  void run() {
    // Packs as few columns of b at a time as keep the team busy: they are then still in the caches when they are read.
    // With rows of a that are kept, more, as those are packed again for every group of columns.
    Index wanted = ceil_div(4 * threads_, down()) * block_cols_;
    if constexpr (Kernel::kKeptLeft > 0) {
      constexpr Index kGroup = 1 << 21;  // floats
      wanted = most(wanted, kGroup / (steps_ * Kernel::kRight) * Kernel::kCols / block_cols_ * block_cols_);
    }
    const Index together = least(wanted, whole_panels(op_.c.cols, Kernel::kCols));
    const Scratch right(together / Kernel::kCols * steps_ * Kernel::kRight), memory(threads_ * thread_size());
    auto* packed = reinterpret_cast<Packed*>(right.data());
    for (Index thread = 0; thread < threads_; ++thread) kept_rows(memory.data() + thread * thread_size()) = -1;
    for (Index j = 0; j < op_.c.cols; j += together) {
      Matmul part = matmul_block(op_, 0, j, {op_.c.rows, together});
      part.a = op_.a;
      pack(packed, part);
      const Index tasks = down() * ceil_div(part.c.cols, block_cols_);
      const Index across = tasks / down();
      // Blocks that read the same rows follow each other if those are kept, otherwise the same columns.
      each_task(tasks, part.c.numel() * terms_of(op_) / 2, [&](Index task, int thread) {
        const Index row = whole() ? task / across : task % down(), col = whole() ? task % across : task / down();
        compute(part, packed, memory.data() + thread * thread_size(), row * block_rows_, col * block_cols_);
      });
    }
  }

 private:
  using Packed = typename Kernel::Packed;
  static_assert(sizeof(Packed) == sizeof(float));

  static Index whole_panels(Index n, Index panel) { return ceil_div(n, panel) * panel; }
  Index down() const { return ceil_div(op_.c.rows, block_rows_); }
  // Whether a thread keeps all terms of a block's rows.
  bool whole() const { return Kernel::kKeptLeft > 0 && chunk_ >= steps_; }
  // A thread's memory: a line that tells which rows are packed, the packed rows, the sums. In floats, whole lines.
  static constexpr Index kLine = 16;
  static Index whole_lines(Index floats) { return ceil_div(floats, kLine) * kLine; }
  static Index& kept_rows(float* memory) { return *reinterpret_cast<Index*>(memory); }
  Index slice_size() const { return block_rows_ / Kernel::kRows * slice_ * Kernel::kLeft; }
  Index left_size() const { return whole_lines(chunk_ / slice_ * slice_size()); }
  Index sums_size() const { return whole_lines(block_rows_ * (whole() ? Kernel::kCols : block_cols_)); }
  Index thread_size() const { return kLine + left_size() + sums_size(); }

  void pack(Packed* packed, const Matmul& part) const {
    const Index panels = ceil_div(part.c.cols, Kernel::kCols);
    const auto pack_panel = [&](Index panel, Index first, Index steps) {
      Kernel::pack_right(packed + (panel * steps_ + first) * Kernel::kRight, part, panel * Kernel::kCols, first, steps);
    };
    if (part.transpose_b) {  // a panel is kCols whole rows of b
      each_chunk(panels, part.b.numel(), [&](Index panel) { pack_panel(panel, 0, steps_); });
    } else {
      each_chunk(ceil_div(steps_, Kernel::kPackSteps), part.b.numel(), [&](Index chunk) {
        const Index first = chunk * Kernel::kPackSteps, steps = least(Kernel::kPackSteps, steps_ - first);
        for (Index panel = 0; panel < panels; ++panel) pack_panel(panel, first, steps);
      });
    }
  }

  // Computes the block at (i0, j0).
  void compute(const Matmul& part, const Packed* packed, float* memory, Index i0, Index j0) const {
    const Matmul block = matmul_block(part, i0, j0, {block_rows_, block_cols_});
    const Index rows = block.c.rows, cols = block.c.cols;
    auto* left = reinterpret_cast<Packed*>(memory + kLine);
    float* sums = memory + kLine + left_size();  // as [panel of columns][panel of rows][kRows][kCols]
    for (Index begin = 0; begin < steps_; begin += chunk_) {
      const Index end = least(steps_, begin + chunk_);
      if (!whole() || kept_rows(memory) != i0) {
        for (Index first = begin; first < end; first += slice_) {
          Packed* slice = left + (first - begin) / slice_ * slice_size();
          Kernel::pack_left(slice, part, i0, rows, first, least(slice_, end - first));
        }
        kept_rows(memory) = i0;
      }
      const typename Kernel::Session session;
      for (Index j = 0; j < cols; j += Kernel::kCols) {
        const Packed* right = packed + ((j0 + j) / Kernel::kCols * steps_ + begin) * Kernel::kRight;
        float* of_panel = whole() ? sums : sums + j * block_rows_;
        for (Index first = begin; first < end; first += slice_) {
          const Index steps = least(slice_, end - first);
          multiply_slice(left + (first - begin) / slice_ * slice_size(), right, of_panel, block, j, steps, first);
          right += steps * Kernel::kRight;
        }
        if (end == steps_) done_(matmul_block(block, 0, j, {rows, Kernel::kCols}));
      }
    }
  }

  // Multiplies a slice of all rows by that of a panel of b; writes the sums if it is the last one.
  void multiply_slice(const Packed* left, const Packed* right, float* sums, const Matmul& block, Index j, Index steps,
                      Index first) const {
    constexpr Index kSums = Kernel::kRows * Kernel::kCols;
    const Index rows = block.c.rows, panels = ceil_div(rows, Kernel::kRows);
    const bool last = first + steps == steps_;
    // Beside the tiles: fetches what follows in b, which would come from memory when it is needed, and writes the rows
    // above, whose lines were fetched a panel earlier.
    const Packed* next = right + steps * Kernel::kRight;
    const Index lines = ceil_div(steps * Kernel::kRight, kLine * panels), share = ceil_div(Kernel::kRows, steps);
    const auto beside = [&](Index panel, Index step) {
      for (Index k = step; k < lines; k += steps) __builtin_prefetch(next + (panel * lines + k) * kLine, 0, 2);
      if (!last) return;
      const Index row = step * share, count = least(share, Kernel::kRows - row);
      if (panel > 0) {
        write_rows(block, (panel - 1) * Kernel::kRows + row, j, sums + (panel - 1) * kSums + row * Kernel::kCols,
                   count);
      }
      will_write(block, panel * Kernel::kRows + row, j, count);
    };
    if (first == 0) {
      Kernel::template multiply<false>(left, right, sums, steps, rows, beside);
    } else {
      Kernel::template multiply<true>(left, right, sums, steps, rows, beside);
    }
    if (!last) return;
    const Index written = Kernel::kKeptLeft > 0 ? (panels - 1) * Kernel::kRows : 0;
    write_rows(block, written, j, sums + written * Kernel::kCols, rows - written);
  }

  static void will_write(const Matmul& block, Index i, Index j, Index rows) {
    const Index size = size_of(block.c.dtype);
    for (Index end = least(i + rows, block.c.rows); i < end; ++i) {
      const std::byte* c = block.c.data + (i * block.c.ld + j) * size;
      for (Index k = 0; k < Kernel::kCols * size; k += 64) __builtin_prefetch(c + k, 1);
    }
  }

  // Writes sums to rows from i on, columns from j on of a block.
  static void write_rows(const Matmul& block, Index i, Index j, const float* sums, Index rows) {
    using Element = typename Kernel::Element;
    const Index cols = least(Kernel::kCols, block.c.cols - j);
    const Element* bias = block.bias ? row_of<Element>(block.bias, 0) + j : nullptr;
    with_type(block.c.dtype, [&](auto type) {
      for (const Index end = i + rows; i < end; ++i, sums += Kernel::kCols) {
        auto* c = row_of<decltype(type)>(block.c, i) + j;
        each_vector(cols, [&](Index k, auto lanes) {
          Vf sum = load(sums + k);
          if (bias != nullptr) sum += load(bias + k, lanes);
          store(c + k, block.accumulate ? load(c + k, lanes) + sum : sum, lanes);
        });
      }
    });
  }

  const Matmul& op_;
  MatmulDone done_;
  Index threads_, steps_, slice_, chunk_, block_rows_, block_cols_;
};

}  // namespace ms::tensor::MS_ISA
