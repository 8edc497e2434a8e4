// Sums and maxima over the ranks that share a GPU: each vector of every input is read once, in rank order.
#include "vector.cuh"

namespace ms::kernels {
namespace {

constexpr int kThreads = 256;

struct Inputs {
  const void* at[kMostInputs];
};

template <bool kMaximum, class T>
__device__ T combined(T a, T b) {
  if constexpr (kMaximum) {
    return b > a || b != b ? b : a;  // NaN is the maximum
  } else {
    return a + b;
  }
}

template <bool kMaximum, class T, int kL>
__global__ void __launch_bounds__(kThreads) reduce_vectors(T* out, Inputs in, int count, std::int64_t n) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kL;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kL; i < n; i += step) {
    Lanes<T, kL> all, next;
    all.load(static_cast<const T*>(in.at[0]) + i);
    for (int k = 1; k < count; ++k) {
      next.load(static_cast<const T*>(in.at[k]) + i);
#pragma unroll
      for (int j = 0; j < kL; ++j) all.v[j] = combined<kMaximum>(all.v[j], next.v[j]);
    }
    all.store(out + i);
  }
}
template <bool kMaximum, class T>
__global__ void __launch_bounds__(kThreads) reduce_elements(T* out, Inputs in, int count, std::int64_t n) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    T all = static_cast<const T*>(in.at[0])[i];
    for (int k = 1; k < count; ++k) all = combined<kMaximum>(all, static_cast<const T*>(in.at[k])[i]);
    out[i] = all;
  }
}

template <bool kMaximum>
void reduce_as(Stream stream, Type type, void* out, const Inputs& in, int count, std::int64_t n) {
  if (type == Type::f64)
    return launch(reduce_elements<kMaximum, double>, blocks_for(n, kThreads), kThreads, stream,
                  static_cast<double*>(out), in, count, n);
  if (type == Type::i32)
    return launch(reduce_elements<kMaximum, std::int32_t>, blocks_for(n, kThreads), kThreads, stream,
                  static_cast<std::int32_t*>(out), in, count, n);
  by_type(type, [&]<class T>(T) {
    constexpr int kL = kLanes<T, true>;
    bool aligned = n % kL == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
    for (int k = 0; k < count; ++k) aligned = aligned && reinterpret_cast<std::uintptr_t>(in.at[k]) % 16 == 0;
    if (aligned) {
      launch(reduce_vectors<kMaximum, T, kL>, blocks_for(n / kL, kThreads), kThreads, stream, static_cast<T*>(out), in,
             count, n);
    } else {
      launch(reduce_vectors<kMaximum, T, 1>, blocks_for(n, kThreads), kThreads, stream, static_cast<T*>(out), in, count,
             n);
    }
  });
}

}  // namespace

void reduce(Stream stream, bool maximum, Type type, void* out, const void* const* inputs, int count, std::int64_t n) {
  Inputs in{};
  for (int k = 0; k < count; ++k) in.at[k] = inputs[k];
  if (maximum) {
    reduce_as<true>(stream, type, out, in, count, n);
  } else {
    reduce_as<false>(stream, type, out, in, count, n);
  }
}

}  // namespace ms::kernels
