// The amax of a result, found by the kernel that makes it: threads keep the amax of what they store
// (Lanes::amax), blocks the largest of their threads', and the largest of all is the same in any order.
#pragma once

#include "vector.cuh"

namespace ms::kernels {

// Issues *amax = 0, before a kernel that calls block_amax().
void clear_amax(Stream stream, float* amax);

__device__ inline unsigned warp_max(unsigned x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x = max(x, __shfl_xor_sync(~0U, x, offset));
  return x;
}

// Raises *amax to the largest of the magnitudes of the block's threads, as rounded to T: rounding keeps their order.
// Every thread of the block must call it, once: `shared`, of kWarp values, is its own. If blockDim.x is a warp, that
// warp is the block.
template <class T>
__device__ void block_amax(unsigned own, unsigned* shared, float* amax) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp;
  own = warp_max(own);
  if (warps > 1) {
    if (lane == 0) shared[warp] = own;
    __syncthreads();
    own = warp_max(lane < warps ? shared[lane] : 0U);
  }
  // Non-negative floats sort like their bits.
  if (threadIdx.x == 0)
    atomicMax(reinterpret_cast<unsigned*>(amax), magnitude(to_float(from_float<T>(__uint_as_float(own)))));
}

}  // namespace ms::kernels
