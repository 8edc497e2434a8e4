// How a product is cut into blocks of its output, each with whole sums: the bits do not depend on the cut.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/ops.h"

namespace ms::tensor {

struct Blocks {
  std::int64_t rows, cols;
};

// Ways to cut the output into one block a thread, the squarest first: what a block reads is proportional to its rows +
// columns.
std::vector<Blocks> cuts(std::int64_t m, std::int64_t n, int threads);

// The part of the product at this row and column of its output. A transposed a of part counts as packed, without gaps.
Matmul block_at(const Matmul& op, std::int64_t row, std::int64_t col, const Blocks& blocks);

}  // namespace ms::tensor
