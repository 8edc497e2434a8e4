// The optimizers' updates: bound by memory, one pass over the state.
#include "tensor/cpu/wide_sums.h"

namespace ms::tensor::MS_ISA {
namespace {

MS_INLINE Vu mixed(Vu x) {
  x = (x ^ (x >> 16)) * 0x7FEB352DU;
  x = (x ^ (x >> 15)) * 0x846CA68BU;
  return x ^ (x >> 16);
}

MS_INLINE void store_moments(float* m, float* v, Vf m1, Vf v1, Vu, auto lanes) {
  store(m, m1, lanes);
  store(v, v1, lanes);
}
MS_INLINE void store_moments(bfloat16* m, bfloat16* v, Vf m1, Vf v1, Vu seed, auto lanes) {
  const Vu chance = mixed(reinterpret_cast<Vu>(m1) ^ mixed(reinterpret_cast<Vu>(v1) + seed));
  store_rounded(m, m1, chance & 0xFFFFU, lanes);
  store_rounded(v, v1, chance >> 16, lanes);
}

template <class T, class G, class M>
void adamw(const AdamW& op, float factor) {
  const float fresh1 = 1.0F - op.beta1, fresh2 = 1.0F - op.beta2;
  const float scale1 = 1.0F / op.correction1, scale2 = 1.0F / op.correction2;
  const Vu seed = op.seed * 0x9E3779B9U - Vu{};
  each_span(1, op.param.cols, true, [&](Index, Index begin, Index n) {
    M* m = row_of<M>(op.m, 0) + begin;
    M* v = row_of<M>(op.v, 0) + begin;
    const G* grad = row_of<G>(op.grad, 0) + begin;
    T* param = row_of<T>(op.param, 0) + begin;
    float* master = op.master.data == nullptr ? nullptr : row_of<float>(op.master, 0) + begin;
    each_vector(n, [&](Index i, auto lanes) {
      const Vf g = factor * load(grad + i, lanes);
      const Vf m1 = op.beta1 * load(m + i, lanes) + fresh1 * g;
      const Vf v1 = op.beta2 * load(v + i, lanes) + fresh2 * g * g;
      const Vf w0 = master == nullptr ? load(param + i, lanes) : load(master + i, lanes);
      const Vf w1 = w0 - op.lr * (op.weight_decay * w0 + scale1 * m1 / (sqrt(scale2 * v1) + op.eps));
      store_moments(m + i, v + i, m1, v1, seed, lanes);
      if (master != nullptr) store(master + i, w1, lanes);
      store(param + i, w1, lanes);
    });
  });
}

// The update that LAMB subtracts from w, before the learning rate and the parameter's trust ratio.
struct LambStep {
  template <class Lamb>
  MS_INLINE explicit LambStep(const Lamb& op)
      : scale1(1.0F / op.correction1), scale2(1.0F / op.correction2), eps(op.eps), weight_decay(op.weight_decay) {}
  MS_INLINE Vf operator()(Vf m, Vf v, Vf w) const { return scale1 * m / (sqrt(scale2 * v) + eps) + weight_decay * w; }
  float scale1, scale2, eps, weight_decay;
};

struct SquaredNorms {
  double w = 0, u = 0;
  MS_INLINE void operator+=(const SquaredNorms& other) { w += other.w, u += other.u; }
};

// Updates the moments of n elements; u, unless null, receives the updates.
template <class G>
MS_INLINE void lamb_moments(const LambMoments& op, float factor, Index begin, Index n, float* u) {
  const float fresh1 = 1.0F - op.beta1, fresh2 = 1.0F - op.beta2;
  const LambStep step(op);
  float* m = row_of<float>(op.m, 0) + begin;
  float* v = row_of<float>(op.v, 0) + begin;
  const G* grad = row_of<G>(op.grad, 0) + begin;
  const float* w = row_of<float>(op.w, 0) + begin;
  each_vector(n, [&](Index i, auto lanes) {
    const Vf g = factor * load(grad + i, lanes);
    const Vf m1 = op.beta1 * load(m + i, lanes) + fresh1 * g;
    const Vf v1 = op.beta2 * load(v + i, lanes) + fresh2 * g * g;
    store(m + i, m1, lanes);
    store(v + i, v1, lanes);
    if (u != nullptr) store(u + i, step(m1, v1, load(w + i, lanes)), lanes);
  });
}

template <class G>
SquaredNorms lamb_moments_and_norms(const LambMoments& op, float factor) {
  constexpr Index kBlock = 1024;  // updates kept in the nearest cache to be squared in f64
  return sum_flat(op.w.cols, [&](Index begin, Index n) {
    SquaredNorms total;
    for (Index first = begin; first < begin + n; first += kBlock) {
      const Index size = least(kBlock, begin + n - first);
      float u[kBlock];
      lamb_moments<G>(op, factor, first, size, u);
      total += {sum_wide<true>(row_of<float>(op.w, 0) + first, size), sum_wide<true>(u, size)};
    }
    return total;
  });
}

template <class T>
void lamb_apply(const LambApply& op) {
  const double* norms = row_of<double>(op.norms, 0);
  const bool known = norms[0] != 0 && norms[1] != 0;
  const float rate = op.lr * (known ? static_cast<float>(__builtin_sqrt(norms[0]) / __builtin_sqrt(norms[1])) : 1.0F);
  const LambStep step(op);
  each_span(1, op.param.cols, true, [&](Index, Index begin, Index n) {
    const float* m = row_of<float>(op.m, 0) + begin;
    const float* v = row_of<float>(op.v, 0) + begin;
    T* param = row_of<T>(op.param, 0) + begin;
    float* master = op.master.data == nullptr ? nullptr : row_of<float>(op.master, 0) + begin;
    each_vector(n, [&](Index i, auto lanes) {
      const Vf w0 = master == nullptr ? load(param + i, lanes) : load(master + i, lanes);
      const Vf w1 = w0 - rate * step(load(m + i, lanes), load(v + i, lanes), w0);
      if (master != nullptr) store(master + i, w1, lanes);
      store(param + i, w1, lanes);
    });
  });
}

}  // namespace

void run(const AdamW& op) {
  const float factor = *row_of<float>(op.factor, 0);
  if (factor == 0.0F) return;  // the step is skipped
  with_type(op.param.dtype, [&](auto type) {
    with_type(op.grad.dtype, [&](auto grad) {
      with_type(op.m.dtype, [&](auto moment) { adamw<decltype(type), decltype(grad), decltype(moment)>(op, factor); });
    });
  });
}
void run(const LambMoments& op) {
  const float factor = *row_of<float>(op.factor, 0);
  if (factor == 0.0F) return;
  with_type(op.grad.dtype, [&](auto grad) {
    using G = decltype(grad);
    if (!op.norms) {
      return each_span(1, op.w.cols, true,
                       [&](Index, Index begin, Index n) { lamb_moments<G>(op, factor, begin, n, nullptr); });
    }
    const SquaredNorms norms = lamb_moments_and_norms<G>(op, factor);
    row_of<double>(op.norms, 0)[0] += norms.w;
    row_of<double>(op.norms, 0)[1] += norms.u;
  });
}
void run(const LambApply& op) {
  if (*row_of<float>(op.factor, 0) == 0.0F) return;
  with_type(op.param.dtype, [&](auto type) { lamb_apply<decltype(type)>(op); });
}

}  // namespace ms::tensor::MS_ISA
