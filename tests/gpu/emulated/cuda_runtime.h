// Replaces the toolkit's header of this name where kernels and the CUDA device are compiled for the emulated GPU: the
// toolkit's types and functions, and CUDA's C++ extensions for g++.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <bit>
#include <cmath>
#include <utility>

#include "block.h"
#include "stream.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local  // a stream's thread runs one block at a time
#define __launch_bounds__(...)

inline void __syncthreads() { ms::emulated::block_barrier(); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ms::emulated::shuffle_xor(value, mask);
}
inline unsigned atomicMax(unsigned* at, unsigned value) { return ms::emulated::atomic_max(at, value); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
template <class T>
void __stwb(T* to, T value) {
  *to = value;
}
using std::isfinite;
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}

namespace ms::emulated {
// Counts a launch; returns the error if it must be refused.
cudaError_t begin_launch(const cudaLaunchConfig_t& config);
}  // namespace ms::emulated

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  if (const cudaError_t code = ms::emulated::begin_launch(*config); code != cudaSuccess) return code;
  ms::emulated::on_stream(config->stream, [grid = config->gridDim, block = config->blockDim, kernel,
                                           ... values = static_cast<Parameters>(std::forward<Arguments>(arguments))] {
    // Copying arguments is no access of the kernel's.
    ms::emulated::run_grid(
        grid, block, [&]() __attribute__((no_sanitize("thread"))) {
          ms::emulated::enter_kernel();
          kernel(values...);
          ms::emulated::leave_kernel();
        });
  });
  return cudaSuccess;
}
