#include "mistakes.h"

#include "kernels/vector.cuh"

namespace ms::kernels {
namespace {

constexpr int kThreads = 64;

template <bool kBarrier>
__global__ void shift(float* to, const float* from) {
  __shared__ float row[kThreads];
  row[threadIdx.x] = from[threadIdx.x];
  if constexpr (kBarrier) __syncthreads();
  to[threadIdx.x] = row[(threadIdx.x + 1) % kThreads];
}
__global__ void halves(float* to, const float* from, int written) {
  __shared__ float row[kThreads];
  if (static_cast<int>(threadIdx.x) < written) row[threadIdx.x] = from[threadIdx.x];
  __syncthreads();
  to[threadIdx.x] = row[threadIdx.x];
}
__global__ void copy(float* to, const float* from, int stride) {
  to[threadIdx.x] = from[threadIdx.x * static_cast<unsigned>(stride)];
}
__global__ void sum_of_blocks(float* to, const float* from) {
  if (threadIdx.x == 0) *to += from[blockIdx.x];
}

}  // namespace

void shift_row(Stream stream, float* to, const float* from, bool barrier) {
  launch(barrier ? shift<true> : shift<false>, 1, kThreads, stream, to, from);
}
void copy_row(Stream stream, float* to, const float* from, int written) {
  launch(halves, 1, kThreads, stream, to, from, written);
}
void gather(Stream stream, float* to, const float* from, int stride) {
  launch(copy, 1, kThreads, stream, to, from, stride);
}
void add_blocks(Stream stream, float* to, const float* from, int blocks) {
  launch(sum_of_blocks, static_cast<unsigned>(blocks), kThreads, stream, to, from);
}

}  // namespace ms::kernels
