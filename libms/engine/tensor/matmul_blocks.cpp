#include "tensor/matmul_blocks.h"

#include <algorithm>
#include <tuple>

#include "tensor/expert_slots.h"

namespace ms::tensor {
namespace {

// Blocks are multiples of this: register tiles are 16 to 64 wide.
constexpr std::int64_t kBlockUnit = 64;

std::int64_t block_of(std::int64_t n, std::int64_t parts) {
  return std::max<std::int64_t>(1, (n + parts * kBlockUnit - 1) / (parts * kBlockUnit)) * kBlockUnit;
}

}  // namespace

std::vector<MatmulBlock> matmul_cuts(std::int64_t m, std::int64_t n, int threads) {
  std::vector<MatmulBlock> found;
  for (std::int64_t parts_m = 1; parts_m <= threads; ++parts_m) {
    if (threads % parts_m == 0) {
      found.push_back({std::min(m, block_of(m, parts_m)), std::min(n, block_of(n, threads / parts_m))});
    }
  }
  const auto cost = [](const MatmulBlock& blocks) {
    return blocks.rows * blocks.cols + 16 * (blocks.rows + blocks.cols);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const MatmulBlock& a, const MatmulBlock& b) { return cost(a) < cost(b); });
  return found;
}

Matmul matmul_block(const Matmul& op, std::int64_t row, std::int64_t col, const MatmulBlock& block) {
  const std::int64_t rows = std::min(block.rows, op.c.rows - row), cols = std::min(block.cols, op.c.cols - col);
  Matmul part = op;
  part.a_sums = {};  // the whole's
  part.c = op.c.slice_rows(row, rows).slice_cols(col, cols);
  part.a = op.transpose_a ? op.a.slice_cols(row, rows) : op.a.slice_rows(row, rows);
  if (op.transpose_a) part.a.ld = rows;  // packed
  part.b = op.transpose_b ? op.b.slice_rows(col, cols) : op.b.slice_cols(col, cols);
  // Only the whole is known in rounded form.
  if (part.a.numel() != op.a.numel()) part.a_rounded = {};
  if (part.b.numel() != op.b.numel()) part.b_rounded = {};
  if (op.bias) part.bias = op.bias.slice_cols(col, cols);
  for (Tensor* like_c : {&part.gelu_y, &part.gelu_x}) {
    if (*like_c) *like_c = like_c->slice_rows(row, rows).slice_cols(col, cols);
  }
  return part;
}

Matmul expert_matmul(const GroupedMatmul& op, std::int64_t expert, const std::int32_t* offsets) {
  std::int64_t begin = offsets[expert], end = offsets[expert + 1];
  if (op.offsets.rows > 1) {
    const GatheredSlots slots(offsets, op.members, op.ranks(), op.offsets.cols - 1, op.slots() / op.members);
    std::tie(begin, end) = slots.rows_of(op.rank, expert);
  }
  const std::int64_t count = end - begin;
  const auto own = [&](const Tensor& weights) {
    const std::int64_t rows = weights.rows / op.experts();
    return weights.slice_rows(expert * rows, rows);
  };
  return {.c = op.transpose_a ? own(op.c) : op.c.slice_rows(begin, count),
          .a = op.a.slice_rows(begin, count),
          .b = op.transpose_a ? op.b.slice_rows(begin, count) : own(op.b),
          .transpose_a = op.transpose_a,
          .transpose_b = op.transpose_b,
          .accumulate = op.accumulate};
}

}  // namespace ms::tensor
