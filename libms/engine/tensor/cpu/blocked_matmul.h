// A matmul in blocks of its output, for the register kernels of all instruction sets (matmul.cpp). Both operands are
// packed: b once for the whole team, in panels of kCols columns; a by the thread that computes a block, in panels of
// kRows rows. K passes in slices, so that a panel of b stays in the nearest cache and a block's sums in the second.
// Sums are f32 between slices, as they are in registers, so the order of an element's sum depends on nothing but K: not
// on blocks, threads, or what other rows and columns there are.
//
// A Kernel has:
//   Element                 the type of a, b and bias
//   Packed                  32 bits: an f32, or a pair of bf16
//   kRows, kCols            of the output that one call of multiply() computes
//   kTerms                  terms of a step of K; the last step is filled up with zeros
//   kLeft, kRight           Packed of a step in a panel of a and of b
//   kSliceSteps             the most steps of a slice
//   kBlockRows, kBlockCols  the largest block: whole panels
//   kPackSteps              steps of b that a thread packs at a time
//   pack_left(out, op, i, rows, first, steps)    rows [i, i + rows) of op(a), as [panel][steps][kLeft]
//   pack_right(out, op, j, first, steps)         columns [j, j + kCols) of op(b), as [steps][kRight]
//   multiply<kAdd>(left, right, sums, steps, rows)   sums[kRows][kCols] (+)= left right; `rows` of left are used
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
        block_rows_(least(Kernel::kBlockRows, whole_panels(op.c.rows, Kernel::kRows))),
        block_cols_(least(Kernel::kBlockCols, whole_panels(op.c.cols, Kernel::kCols))) {
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
  }

  void run() {
    // Packs as few columns of b at a time as keep the team busy: they are then still in the caches when they are read.
    const Index wanted = ceil_div(4 * threads_, down()) * block_cols_;
    const Index together = least(wanted, whole_panels(op_.c.cols, Kernel::kCols));
    const Scratch right(together / Kernel::kCols * steps_ * Kernel::kRight), memory(threads_ * thread_size());
    auto* packed = reinterpret_cast<Packed*>(right.data());
    for (Index j = 0; j < op_.c.cols; j += together) {
      Matmul part = matmul_block(op_, 0, j, {op_.c.rows, together});
      part.a = op_.a;
      pack(packed, part);
      const Index tasks = down() * ceil_div(part.c.cols, block_cols_);
      // Blocks that read the same columns follow each other.
      each_task(tasks, part.c.numel() * terms_of(op_) / 2, [&](Index task, int thread) {
        compute(part, packed, memory.data() + thread * thread_size(), task % down() * block_rows_,
                task / down() * block_cols_);
      });
    }
  }

 private:
  using Packed = typename Kernel::Packed;
  static_assert(sizeof(Packed) == sizeof(float));

  static Index whole_panels(Index n, Index panel) { return ceil_div(n, panel) * panel; }
  Index down() const { return ceil_div(op_.c.rows, block_rows_); }
  // In floats, whole lines of the cache.
  Index left_size() const { return ceil_div(block_rows_ / Kernel::kRows * slice_ * Kernel::kLeft, 16) * 16; }
  Index thread_size() const { return left_size() + ceil_div(block_rows_ * block_cols_, 16) * 16; }

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
    const Index rows = least(block_rows_, part.c.rows - i0), cols = least(block_cols_, part.c.cols - j0);
    auto* left = reinterpret_cast<Packed*>(memory);
    float* sums = memory + left_size();  // as [panel of columns][panel of rows][kRows][kCols]
    for (Index first = 0; first < steps_; first += slice_) {
      const Index steps = least(slice_, steps_ - first);
      Kernel::pack_left(left, part, i0, rows, first, steps);
      const typename Kernel::Session session;
      for (Index j = 0; j < cols; j += Kernel::kCols) {
        const Packed* right = packed + ((j0 + j) / Kernel::kCols * steps_ + first) * Kernel::kRight;
        for (Index i = 0; i < rows; i += Kernel::kRows) {
          const Packed* a = left + i / Kernel::kRows * steps * Kernel::kLeft;
          float* tile = sums + j * block_rows_ + i * Kernel::kCols;
          if (first == 0) {
            Kernel::template multiply<false>(a, right, tile, steps, least(Kernel::kRows, rows - i));
          } else {
            Kernel::template multiply<true>(a, right, tile, steps, least(Kernel::kRows, rows - i));
          }
        }
      }
    }
    const Matmul block = matmul_block(part, i0, j0, {rows, cols});
    with_type(block.c.dtype, [&](auto type) {
      for (Index i = 0; i < rows; ++i) write_row<decltype(type)>(block, i, sums + i * Kernel::kCols);
    });
    done_(block);
  }

  // Writes a row of a block; `sums` are those of the first panel of columns.
  template <class C>
  void write_row(const Matmul& block, Index i, const float* sums) const {
    using Element = typename Kernel::Element;
    const Element* bias = block.bias ? row_of<Element>(block.bias, 0) : nullptr;
    C* c = row_of<C>(block.c, i);
    for (Index j = 0; j < block.c.cols; j += Kernel::kCols) {
      const float* of_panel = sums + j * block_rows_;
      each_vector(least(Kernel::kCols, block.c.cols - j), [&](Index k, auto lanes) {
        Vf sum = load(of_panel + k);
        if (bias != nullptr) sum += load(bias + j + k, lanes);
        store(c + j + k, block.accumulate ? load(c + j + k, lanes) + sum : sum, lanes);
      });
    }
  }

  const Matmul& op_;
  MatmulDone done_;
  Index threads_, steps_, slice_, block_rows_, block_cols_;
};

}  // namespace ms::tensor::MS_ISA
