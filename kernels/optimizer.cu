// AdamW, LAMB and Muon: each element of parameter, master, moments and gradient is read once and written once.
#include "vector.cuh"

namespace ms::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kL = 4;  // elements at a time: 16 bytes of f32

// The state of four elements, or of one if memory is not aligned.
template <int kCount>
struct Moments {
  float m[kCount], v[kCount], g[kCount];

  template <class M, class G>
  __device__ void load(const M* m_at, const M* v_at, const G* grad, float factor) {
    load_floats(m, m_at);
    load_floats(v, v_at);
    load_floats(g, grad);
#pragma unroll
    for (int i = 0; i < kCount; ++i) g[i] *= factor;
  }
  __device__ void move(const AdamWScalars& a) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      m[i] = a.beta1 * m[i] + (1 - a.beta1) * g[i];
      v[i] = a.beta2 * v[i] + (1 - a.beta2) * g[i] * g[i];
    }
  }
};

__device__ float direction(float m, float v, const AdamWScalars& a) {
  return m / a.correction1 / (sqrtf(v / a.correction2) + a.eps);
}

template <class P, int kCount>
__device__ void store_param(P* param, float* master, const float (&w)[kCount]) {
  if (master != nullptr) store_floats(master, w);
  store_floats(param, w);
}
template <class P, int kCount>
__device__ void load_master(float (&w)[kCount], const P* param, const float* master) {
  if (master != nullptr) {
    load_floats(w, master);
  } else {
    load_floats(w, param);
  }
}

__device__ unsigned mixed(unsigned x) {
  x = (x ^ (x >> 16)) * 0x7FEB352DU;
  x = (x ^ (x >> 15)) * 0x846CA68BU;
  return x ^ (x >> 16);
}
// Rounds up if the 16 bits that bf16 has no room for, and `chance` below 2^16, add up to 2^16. NaN stays NaN.
__device__ float rounded(float x, unsigned chance) {
  return x == x ? __uint_as_float((__float_as_uint(x) + chance) & 0xFFFF0000U) : x;
}
// As tensor/ops.h says.
template <class M, int kCount>
__device__ void store_moments(M* m, M* v, Moments<kCount> at, unsigned seed) {
  if constexpr (sizeof(M) < sizeof(float)) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const unsigned chance = mixed(__float_as_uint(at.m[j]) ^ mixed(__float_as_uint(at.v[j]) + seed * 0x9E3779B9U));
      at.m[j] = rounded(at.m[j], chance & 0xFFFFU);
      at.v[j] = rounded(at.v[j], chance >> 16);
    }
  }
  store_floats(m, at.m);
  store_floats(v, at.v);
}

template <class P, class G, class M, int kCount>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(P* param, float* master, M* m, M* v, const G* grad, const float* factor, AdamWScalars a, unsigned seed,
                 std::int64_t n) {
  const float scale = *factor;
  if (scale == 0) return;  // the step is skipped
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kCount;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; i < n; i += step) {
    Moments<kCount> at;
    at.load(m + i, v + i, grad + i, scale);
    at.move(a);
    store_moments(m + i, v + i, at, seed);
    float w[kCount];
    float* mine = master == nullptr ? nullptr : master + i;
    load_master(w, param + i, mine);
#pragma unroll
    for (int j = 0; j < kCount; ++j) w[j] -= a.lr * (a.weight_decay * w[j] + direction(at.m[j], at.v[j], a));
    store_param(param + i, mine, w);
  }
}

template <class W, class G, int kCount>
__global__ void __launch_bounds__(kThreads)
    lamb_moments_kernel(double* partials, float* m, float* v, const W* w, const G* grad, const float* factor,
                        AdamWScalars a, std::int64_t n) {
  __shared__ double shared[2 * kWarp];
  const float scale = *factor;
  double sums[2] = {0, 0};  // of w^2, of u^2
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kCount;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; scale != 0 && i < n; i += step) {
    Moments<kCount> at;
    at.load(m + i, v + i, grad + i, scale);
    at.move(a);
    store_floats(m + i, at.m);
    store_floats(v + i, at.v);
    float values[kCount];
    load_floats(values, w + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float x = values[j], u = direction(at.m[j], at.v[j], a) + a.weight_decay * x;
      sums[0] += static_cast<double>(x) * static_cast<double>(x);
      sums[1] += static_cast<double>(u) * static_cast<double>(u);
    }
  }
  block_sum(sums, shared);
  if (threadIdx.x != 0) return;
  partials[2 * blockIdx.x] = sums[0];
  partials[2 * blockIdx.x + 1] = sums[1];
}
__global__ void __launch_bounds__(kThreads) add_norms(double* norms, const double* partials, int blocks) {
  __shared__ double shared[2 * kWarp];
  double sums[2] = {0, 0};
  for (int b = static_cast<int>(threadIdx.x); b < blocks; b += kThreads) {
    sums[0] += partials[2 * b];
    sums[1] += partials[2 * b + 1];
  }
  block_sum(sums, shared);
  if (threadIdx.x != 0) return;
  norms[0] += sums[0];
  norms[1] += sums[1];
}

template <class P, int kCount>
__global__ void __launch_bounds__(kThreads)
    lamb_apply_kernel(P* param, float* master, const float* m, const float* v, const double* norms, const float* factor,
                      AdamWScalars a, std::int64_t n) {
  if (*factor == 0) return;
  const double of_w = sqrt(norms[0]), of_u = sqrt(norms[1]);
  const float rate = a.lr * (of_w == 0 || of_u == 0 ? 1.0F : static_cast<float>(of_w / of_u));
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kCount;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; i < n; i += step) {
    float w[kCount], at_m[kCount], at_v[kCount];
    float* mine = master == nullptr ? nullptr : master + i;
    load_master(w, param + i, mine);
    load_floats(at_m, m + i);
    load_floats(at_v, v + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) w[j] -= rate * (direction(at_m[j], at_v[j], a) + a.weight_decay * w[j]);
    store_param(param + i, mine, w);
  }
}

template <class G, int kCount>
__global__ void __launch_bounds__(kThreads) muon_momentum_kernel(__nv_bfloat16* u, float* m, const G* grad,
                                                                 const float* factor, float momentum, std::int64_t n) {
  const float scale = *factor;
  if (scale == 0) return;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kCount;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; i < n; i += step) {
    float at_m[kCount], g[kCount];
    load_floats(at_m, m + i);
    load_floats(g, grad + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      g[j] *= scale;
      at_m[j] += (1 - momentum) * (g[j] - at_m[j]);
      g[j] += momentum * (at_m[j] - g[j]);
    }
    store_floats(m + i, at_m);
    store_floats(u + i, g);
  }
}

template <class P, int kCount>
__global__ void __launch_bounds__(kThreads)
    muon_apply_kernel(P* param, float* master, const __nv_bfloat16* u, const float* factor, float kept, float rate,
                      std::int64_t n) {
  if (*factor == 0) return;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kCount;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; i < n; i += step) {
    float w[kCount], at_u[kCount];
    float* mine = master == nullptr ? nullptr : master + i;
    load_master(w, param + i, mine);
    load_floats(at_u, u + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) w[j] = kept * w[j] - rate * at_u[j];
    store_param(param + i, mine, w);
  }
}

template <int kCount>
__global__ void __launch_bounds__(kThreads)
    muon_normalize_kernel(__nv_bfloat16* y, const __nv_bfloat16* x, const double* sum_squares, float eps,
                          std::int64_t n) {
  const float norm = to_float(__float2bfloat16_rn(static_cast<float>(sqrt(*sum_squares))));
  const float divisor = norm < eps ? eps : norm;  // NaN stays
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kCount;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; i < n; i += step) {
    float at[kCount];
    load_floats(at, x + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) at[j] /= divisor;
    store_floats(y + i, at);
  }
}

template <int kCount>
__global__ void __launch_bounds__(kThreads) muon_blend_kernel(__nv_bfloat16* y, const __nv_bfloat16* a, const float* b,
                                                              float alpha, float beta, std::int64_t n) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads * kCount;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount; i < n; i += step) {
    float at_a[kCount], at_b[kCount];
    load_floats(at_a, a + i);
    load_floats(at_b, b + i);
#pragma unroll
    for (int j = 0; j < kCount; ++j) at_a[j] = alpha * at_a[j] + beta * at_b[j];
    store_floats(y + i, at_a);
  }
}

template <class... P>
bool in_fours(std::int64_t n, const P*... pointers) {
  return n % kL == 0 && ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}
template <class F>
void by_count(bool aligned, F&& f) {
  if (aligned) {
    f.template operator()<kL>();
  } else {
    f.template operator()<1>();
  }
}

}  // namespace

void adamw(Stream stream, Matrix param, float* master, Matrix m, Matrix v, Matrix grad, const float* factor,
           AdamWScalars scalars, unsigned seed) {
  const std::int64_t n = param.rows * param.cols;
  by_type(param.type, [&]<class P>(P) {
    by_type(grad.type, [&]<class G>(G) {
      by_type(m.type, [&]<class M>(M) {
        by_count(in_fours(n, param.data, master, m.data, v.data, grad.data), [&]<int kCount>() {
          launch(adamw_kernel<P, G, M, kCount>, blocks_for(n / kCount, kThreads), kThreads, stream, as<P>(param),
                 master, as<M>(m), as<M>(v), as<G>(grad), factor, scalars, seed, n);
        });
      });
    });
  });
}

void lamb_moments(Stream stream, double* norms, float* m, float* v, Matrix w, Matrix grad, const float* factor,
                  AdamWScalars scalars, void* scratch) {
  const std::int64_t n = w.rows * w.cols;
  auto* partials = static_cast<double*>(scratch);
  const unsigned blocks = min(blocks_for(n / kL, kThreads), static_cast<unsigned>(kTotals));
  by_type(w.type, [&]<class W>(W) {
    by_type(grad.type, [&]<class G>(G) {
      by_count(in_fours(n, w.data, m, v, grad.data), [&]<int kCount>() {
        launch(lamb_moments_kernel<W, G, kCount>, blocks, kThreads, stream, partials, m, v, as<W>(w), as<G>(grad),
               factor, scalars, n);
      });
    });
  });
  if (norms != nullptr) launch(add_norms, 1, kThreads, stream, norms, partials, static_cast<int>(blocks));
}

void lamb_apply(Stream stream, Matrix param, float* master, const float* m, const float* v, const double* norms,
                const float* factor, AdamWScalars scalars) {
  const std::int64_t n = param.rows * param.cols;
  by_type(param.type, [&]<class P>(P) {
    by_count(in_fours(n, param.data, master, m, v), [&]<int kCount>() {
      launch(lamb_apply_kernel<P, kCount>, blocks_for(n / kCount, kThreads), kThreads, stream, as<P>(param), master, m,
             v, norms, factor, scalars, n);
    });
  });
}

void muon_momentum(Stream stream, Matrix u, float* m, Matrix grad, const float* factor, float momentum) {
  const std::int64_t n = u.cols;
  by_type(grad.type, [&]<class G>(G) {
    by_count(in_fours(n, u.data, m, grad.data), [&]<int kCount>() {
      launch(muon_momentum_kernel<G, kCount>, blocks_for(n / kCount, kThreads), kThreads, stream, as<__nv_bfloat16>(u),
             m, as<G>(grad), factor, momentum, n);
    });
  });
}

void muon_apply(Stream stream, Matrix param, float* master, Matrix u, const float* factor, float lr, float weight_decay,
                float scale) {
  const std::int64_t n = param.cols;
  by_type(param.type, [&]<class P>(P) {
    by_count(in_fours(n, param.data, master, u.data), [&]<int kCount>() {
      launch(muon_apply_kernel<P, kCount>, blocks_for(n / kCount, kThreads), kThreads, stream, as<P>(param), master,
             as<__nv_bfloat16>(u), factor, 1 - lr * weight_decay, lr * scale, n);
    });
  });
}

void normalize(Stream stream, Matrix y, Matrix x, const double* sum_squares, float eps) {
  const std::int64_t n = x.rows * x.cols;
  by_count(in_fours(n, y.data, x.data), [&]<int kCount>() {
    launch(muon_normalize_kernel<kCount>, blocks_for(n / kCount, kThreads), kThreads, stream, as<__nv_bfloat16>(y),
           as<__nv_bfloat16>(x), sum_squares, eps, n);
  });
}

void blend(Stream stream, Matrix y, Matrix a, Matrix b, float alpha, float beta) {
  const std::int64_t n = a.rows * a.cols;
  by_count(in_fours(n, y.data, a.data, b.data), [&]<int kCount>() {
    launch(muon_blend_kernel<kCount>, blocks_for(n / kCount, kThreads), kThreads, stream, as<__nv_bfloat16>(y),
           as<__nv_bfloat16>(a), as<float>(b), alpha, beta, n);
  });
}

}  // namespace ms::kernels
