// How a product is cut into blocks of its output, each with whole sums: the bits do not depend on the cut.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/ops.h"

namespace ms::tensor {

struct MatmulBlock {
  std::int64_t rows, cols;
};

// Ways to cut the output into one block a thread, the squarest first: what a block reads is proportional to its rows +
// columns.
std::vector<MatmulBlock> matmul_cuts(std::int64_t m, std::int64_t n, int threads);

// The block of the product at this row and column of its output, or what is left of it there. Its a, if transposed,
// counts as packed, without gaps.
Matmul matmul_block(const Matmul& op, std::int64_t row, std::int64_t col, const MatmulBlock& block);

}  // namespace ms::tensor
