// Sums over rows, in two launches: blocks leave partial sums of the rows that they read, and those are added in block
// order.
#pragma once

#include "vector.cuh"

namespace ms::kernels {

// out[c] (+)= the sum over b < blocks of partials[b][c]. With second_out, which is like out, partials have 2 columns
// for each of out, the second half for second_out.
void add_partials(Stream stream, Matrix out, Matrix second_out, const float* partials, int blocks, bool accumulate);

}  // namespace ms::kernels
