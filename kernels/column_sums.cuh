// Sums over rows, in two launches: blocks leave partial sums of what rows they saw, and those are added in order of
// block.
#pragma once

#include "vector.cuh"

namespace ms::kernels {

// out[c] += the sum over b < blocks of partials[b][c]; where there is a second one, partials are of 2 cols columns, its
// own behind.
void add_partials(Stream stream, float* out, float* second_out, const float* partials, int blocks, std::int64_t cols);

}  // namespace ms::kernels
