// Splits a matmul into blocks of its output. Each block computes whole sums, so that the bits do not depend on the
// split.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/ops.h"

namespace ms::tensor {

struct MatmulBlock {
  std::int64_t rows, cols;
};

// Returns the ways to split the output into one block a thread, the squarest first: what a block reads is proportional
// to its rows + columns.
std::vector<MatmulBlock> matmul_cuts(std::int64_t m, std::int64_t n, int threads);

// Returns the block of the matmul at this row and column of its output, clipped at the edges. A transposed a counts as
// packed, without gaps between rows. A block has no a_sums: those are the whole's.
Matmul matmul_block(const Matmul& op, std::int64_t row, std::int64_t col, const MatmulBlock& block);

// Returns the matmul of one expert. `offsets`: those of the op, where the host can read them.
Matmul expert_matmul(const GroupedMatmul& op, std::int64_t expert, const std::int32_t* offsets);

}  // namespace ms::tensor
