// Kernels of 64 threads that are right or wrong as the test asks.
#pragma once

#include "kernels/launch.h"

namespace ms::kernels {

void shift_row(Stream stream, float* to, const float* from,
               bool barrier);                                             // to[i] = from[i + 1], through shared memory
void copy_row(Stream stream, float* to, const float* from, int written);  // likewise, of which so many are written
void gather(Stream stream, float* to, const float* from, int stride);
void add_blocks(Stream stream, float* to, const float* from, int blocks);  // a race unless there is one block

}  // namespace ms::kernels
