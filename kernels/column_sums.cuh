// Sums over rows, in two launches: blocks leave partial sums of what rows they saw, and those are added in order of
// block.
#pragma once

#include "vector.cuh"

namespace ms::kernels {

// out[c] += the sum over b < blocks of partials[b * stride + c].
void add_partials(Stream stream, float* out, const float* partials, int blocks, std::int64_t stride, std::int64_t cols);

}  // namespace ms::kernels
