// Cross entropy of a vocabulary shard. A block owns a row: one pass over the logits computes the maximum and the sum of
// exponentials, rescaled as the maximum rises; a second computes the gradient in place.
#include "vector.cuh"

namespace ms::kernels {
namespace {

constexpr int kThreads = 512;

// A running maximum and the sum of exp(x - maximum).
struct Peak {
  float max = -INFINITY, sum = 0;

  __device__ void add(float x) {
    if (x > max) {
      sum = sum * expf(max - x) + 1;
      max = x;
    } else {
      sum += expf(x - max);
    }
  }
  __device__ void add(Peak other) {
    const float top = fmaxf(max, other.max);
    if (top == -INFINITY) return;
    sum = sum * expf(max - top) + other.sum * expf(other.max - top);
    max = top;
  }
};
__device__ Peak warp_peak(Peak p) {
  float top = p.max;
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(~0U, top, offset));
  return {top, warp_sum(top == -INFINITY ? 0 : p.sum * expf(p.max - top))};
}

// Adds exp(x - max) of a vector. For bf16 it uses powers of two, which take fewer instructions: otherwise instructions,
// not memory, would limit the kernel.
template <class T, int kL>
__device__ void add_vector(Peak& peak, const float (&x)[kL]) {
  constexpr float kLog2e = 1.4426950408889634F;
  const float shift = peak.max * kLog2e;
#pragma unroll
  for (int i = 0; i < kL; ++i) {
    if constexpr (sizeof(T) == 2) {
      peak.sum += exp2f(fmaf(x[i], kLog2e, -shift));
    } else {
      peak.sum += expf(x[i] - peak.max);
    }
  }
}

template <class T, int kL>
__global__ void __launch_bounds__(kThreads)
    stats_kernel(float* stats, std::int64_t stats_ld, const T* logits, std::int64_t ld, const std::int32_t* targets,
                 std::int64_t first, std::int64_t valid) {
  __shared__ float maxima[kWarp], sums[kWarp];
  const std::int64_t row = blockIdx.x;
  const T* x = logits + row * ld;
  Peak peak;
  const std::int64_t whole = valid / kL * kL;
  for (std::int64_t col = std::int64_t{threadIdx.x} * kL; col < whole; col += std::int64_t{kThreads} * kL) {
    Lanes<T, kL> v;
    v.load(x + col);
    float top = v.v[0];
#pragma unroll
    for (int i = 1; i < kL; ++i) top = fmaxf(top, v.v[i]);
    if (top > peak.max) {  // one rescaling per vector
      peak.sum *= expf(peak.max - top);
      peak.max = top;
    }
    add_vector<T>(peak, v.v);
  }
  if (const std::int64_t col = whole + threadIdx.x; col < valid) peak.add(to_float(x[col]));
  peak = warp_peak(peak);
  if (threadIdx.x % kWarp == 0) {
    maxima[threadIdx.x / kWarp] = peak.max;
    sums[threadIdx.x / kWarp] = peak.sum;
  }
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  peak = warp_peak(threadIdx.x < kThreads / kWarp ? Peak{maxima[threadIdx.x], sums[threadIdx.x]} : Peak());
  if (threadIdx.x != 0) return;
  const std::int64_t target = targets[row] - first;
  stats[row] = peak.max;
  stats[stats_ld + row] = peak.sum;
  stats[2 * stats_ld + row] = target >= 0 && target < valid ? to_float(x[target]) : 0;
}

__global__ void combine_kernel(float* loss, float* lse, const float* gathered, std::int64_t ld, std::int64_t shards,
                               const std::int32_t* targets, std::int64_t tokens) {
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t >= tokens) return;
  Peak peak;
  float target = 0;
  for (std::int64_t s = 0; s < shards; ++s) {
    const float* stats = gathered + 3 * s * ld;
    peak.add(Peak{stats[t], stats[ld + t]});
    target += stats[2 * ld + t];
  }
  lse[t] = peak.max + logf(peak.sum);
  loss[t] = targets != nullptr && targets[t] < 0 ? 0 : lse[t] - target;
}

template <class T, int kL>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(T* logits, std::int64_t ld, const float* lse, const std::int32_t* targets, std::int64_t first,
                    std::int64_t valid, std::int64_t cols, float scale, float z) {
  const std::int64_t row = blockIdx.x;
  T* x = logits + row * ld;
  const float log_sum = lse[row], weight = z == 0 ? 1.0F : 1.0F + 2.0F * z * log_sum;
  const std::int64_t target = targets[row] - first, used = targets[row] < 0 ? 0 : valid;
  for (std::int64_t col = std::int64_t{threadIdx.x} * kL; col < cols; col += std::int64_t{kThreads} * kL) {
    Lanes<T, kL> v;
    v.load(x + col);
#pragma unroll
    for (int i = 0; i < kL; ++i) {
      const float p = weight * expf(v.v[i] - log_sum) - (col + i == target ? 1.0F : 0.0F);
      v.v[i] = col + i < used ? scale * p : 0.0F;
    }
    v.store(x + col);
  }
}

}  // namespace

void loss_stats(Stream stream, Matrix stats, Matrix logits, const std::int32_t* targets, std::int64_t first,
                std::int64_t valid) {
  by_type(logits.type, [&]<class T>(T) {
    const auto blocks = static_cast<unsigned>(logits.rows);
    if (is_aligned(logits)) {
      launch(stats_kernel<T, kLanes<T, true>>, blocks, kThreads, stream, as<float>(stats), stats.ld, as<T>(logits),
             logits.ld, targets, first, valid);
    } else {
      launch(stats_kernel<T, 1>, blocks, kThreads, stream, as<float>(stats), stats.ld, as<T>(logits), logits.ld,
             targets, first, valid);
    }
  });
}

void loss_combine(Stream stream, float* loss, float* lse, Matrix gathered, const std::int32_t* targets) {
  constexpr int kTokens = 256;
  launch(combine_kernel, blocks_for(gathered.cols, kTokens), kTokens, stream, loss, lse, as<float>(gathered),
         gathered.ld, gathered.rows / 3, targets, gathered.cols);
}

void loss_backward(Stream stream, Matrix logits, const float* lse, const std::int32_t* targets, std::int64_t first,
                   std::int64_t valid, float scale, float z) {
  by_type(logits.type, [&]<class T>(T) {
    const auto blocks = static_cast<unsigned>(logits.rows);
    if (is_aligned(logits)) {
      launch(backward_kernel<T, kLanes<T, true>>, blocks, kThreads, stream, as<T>(logits), logits.ld, lse, targets,
             first, valid, logits.cols, scale, z);
    } else {
      launch(backward_kernel<T, 1>, blocks, kThreads, stream, as<T>(logits), logits.ld, lse, targets, first, valid,
             logits.cols, scale, z);
    }
  });
}

}  // namespace ms::kernels
