// Shared by the kernels: vectors of 16 bytes as floats, block-wide sums in a fixed order, and launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <utility>

#include "launch.h"

namespace ms::kernels {

constexpr int kWarp = 32;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(double x) { return static_cast<float>(x); }
template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline double from_float<double>(float x) {
  return x;
}

// Returns |x| as bits, which sort like magnitudes; infinities and NaN are above all else.
__device__ inline unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffU; }

// kLanes elements of T are one access: 16 bytes, or one element if memory is not aligned. Vectors are stored by
// __stwb(), which is one instruction: the compiler takes an assignment of a uint4 apart, and may leave four stores of
// 32 bits.
template <class T, bool kAligned>
constexpr int kLanes = kAligned ? 16 / static_cast<int>(sizeof(T)) : 1;

template <class T, int kCount>
struct Lanes {
  float v[kCount];

  __device__ void load(const T* from) {
    if constexpr (kCount == 1) {
      v[0] = to_float(*from);
    } else {
      const uint4 bits = *reinterpret_cast<const uint4*>(from);
      const T* elements = reinterpret_cast<const T*>(&bits);
#pragma unroll
      for (int i = 0; i < kCount; ++i) v[i] = to_float(elements[i]);
    }
  }
  __device__ void store(T* to) const {
    if constexpr (kCount == 1) {
      *to = from_float<T>(v[0]);
    } else {
      uint4 bits;
      T* elements = reinterpret_cast<T*>(&bits);
#pragma unroll
      for (int i = 0; i < kCount; ++i) elements[i] = from_float<T>(v[i]);
      __stwb(reinterpret_cast<uint4*>(to), bits);
    }
  }
  // Returns the largest of the magnitudes, and of another.
  __device__ unsigned amax(unsigned other) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) other = max(other, magnitude(v[i]));
    return other;
  }
};
// The same as stored in memory: half the registers if elements are bf16.
template <class T, int kCount>
struct Packed {
  T v;
  __device__ void load(const T* from) { v = *from; }
  __device__ float operator[](int) const { return to_float(v); }
};
template <class T, int kCount>
requires(kCount > 1) struct Packed<T, kCount> {
  uint4 bits;
  __device__ void load(const T* from) { bits = *reinterpret_cast<const uint4*>(from); }
  __device__ float operator[](int i) const { return to_float(reinterpret_cast<const T*>(&bits)[i]); }
};
// As many floats as there are lanes, from memory that is f32 whatever T is.
template <int kCount>
__device__ void load_floats(float (&v)[kCount], const float* from) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = from[i];
  }
}
template <int kCount>
__device__ void store_floats(float* to, const float (&v)[kCount]) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4)
      __stwb(reinterpret_cast<float4*>(to + i), make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]));
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = v[i];
  }
}

// bf16 by four, if there are as many.
template <int kCount>
__device__ void load_floats(float (&v)[kCount], const __nv_bfloat16* from) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const uint2 bits = *reinterpret_cast<const uint2*>(from + i);
      const auto* elements = reinterpret_cast<const __nv_bfloat16*>(&bits);
#pragma unroll
      for (int j = 0; j < 4; ++j) v[i + j] = to_float(elements[j]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = to_float(from[i]);
  }
}
template <int kCount>
__device__ void store_floats(__nv_bfloat16* to, const float (&v)[kCount]) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      uint2 bits;
      auto* elements = reinterpret_cast<__nv_bfloat16*>(&bits);
#pragma unroll
      for (int j = 0; j < 4; ++j) elements[j] = from_float<__nv_bfloat16>(v[i + j]);
      __stwb(reinterpret_cast<uint2*>(to + i), bits);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = from_float<__nv_bfloat16>(v[i]);
  }
}

template <class T>
__device__ T warp_sum(T x) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0U, x, offset);
  return x;
}

// Returns the sums of all threads' values, on all threads. Every thread of the block must call it. kCount sums at a
// time share one barrier. `shared` has kCount * 32 values and may be reused once all threads have passed the next
// barrier.
template <int kCount, class T>
__device__ void block_sum(T (&x)[kCount], T* shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = (static_cast<int>(blockDim.x) + kWarp - 1) / kWarp;
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] = warp_sum(x[i]);
  if (warps == 1) return;
  __syncthreads();  // the last use of `shared` is over
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) shared[i * kWarp + warp] = x[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] = warp_sum(lane < warps ? shared[i * kWarp + lane] : T(0));
}

inline bool is_aligned(const Matrix& m) {
  const std::size_t size = m.type == Type::bf16 ? 2 : m.type == Type::f64 ? 8 : 4;
  const auto bytes = static_cast<std::size_t>(m.ld) * size, width = static_cast<std::size_t>(m.cols) * size;
  return m.data == nullptr ||
         (reinterpret_cast<std::uintptr_t>(m.data) % 16 == 0 && (m.rows == 1 || bytes % 16 == 0) && width % 16 == 0);
}
inline bool is_flat(const Matrix& m) { return m.data == nullptr || m.rows == 1 || m.ld == m.cols; }

template <class T>
T* as(const Matrix& m) {
  return reinterpret_cast<T*>(m.data);
}

// Calls f with a value of the element's type.
template <class F>
void by_type(Type type, F&& f) {
  if (type == Type::bf16) {
    f(__nv_bfloat16());
  } else {
    f(float());
  }
}

template <class F>
void by_type_or_f64(Type type, F&& f) {
  if (type == Type::f64) {
    f(double());
  } else {
    by_type(type, f);
  }
}

// Calls f with the lanes of a vector: of 16 bytes, or of one element.
template <class T, class F>
void by_lanes(bool aligned, F&& f) {
  if (aligned) {
    f.template operator()<kLanes<T, true>>();
  } else {
    f.template operator()<1>();
  }
}

// Launches without dynamic shared memory; arguments are converted to the kernel's parameter types. With no blocks,
// because there are no rows, it does nothing.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, Stream stream, Arguments&&... arguments) {
  if (blocks.x == 0 || blocks.y == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = stream;
  cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);  // the caller checks for errors
}

// Returns the blocks for `work` threads of `threads` each, capped: kernels stride over the rest.
inline unsigned blocks_for(std::int64_t work, int threads) {
  constexpr std::int64_t kMost = 1 << 16;
  const std::int64_t blocks = (work + threads - 1) / threads;
  return static_cast<unsigned>(blocks < kMost ? (blocks > 0 ? blocks : 1) : kMost);
}

}  // namespace ms::kernels
