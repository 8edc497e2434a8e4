// The elementwise ops of Muon: bound by memory.
#include "tensor/cpu/parallel.h"

namespace ms::tensor::MS_ISA {
namespace {

template <class G>
void momentum(const MuonMomentum& op, float factor) {
  const float fresh = 1.0F - op.momentum;
  each_span(1, op.m.cols, true, [&](Index, Index begin, Index n) {
    float* m = row_of<float>(op.m, 0) + begin;
    bfloat16* u = row_of<bfloat16>(op.u, 0) + begin;
    const G* grad = row_of<G>(op.grad, 0) + begin;
    each_vector(n, [&](Index i, auto lanes) {
      const Vf g = factor * load(grad + i, lanes), m0 = load(m + i, lanes);
      const Vf m1 = m0 + fresh * (g - m0);
      store(m + i, m1, lanes);
      store(u + i, g + op.momentum * (m1 - g), lanes);
    });
  });
}

template <class T>
void apply(const MuonApply& op) {
  const float kept = 1.0F - op.lr * op.weight_decay, rate = op.lr * op.scale;
  each_span(1, op.param.cols, true, [&](Index, Index begin, Index n) {
    const bfloat16* u = row_of<bfloat16>(op.u, 0) + begin;
    T* param = row_of<T>(op.param, 0) + begin;
    float* master = op.master.data == nullptr ? nullptr : row_of<float>(op.master, 0) + begin;
    each_vector(n, [&](Index i, auto lanes) {
      const Vf w0 = master == nullptr ? load(param + i, lanes) : load(master + i, lanes);
      const Vf w1 = kept * w0 - rate * load(u + i, lanes);
      if (master != nullptr) store(master + i, w1, lanes);
      store(param + i, w1, lanes);
    });
  });
}

// Rounds to bf16 and back, to nearest even.
float rounded(float x) {
  bfloat16 half;
  store(&half, splat(x), Part{1});
  return load(&half, Part{1})[0];
}

}  // namespace

void run(const MuonMomentum& op) {
  const float factor = *row_of<float>(op.factor, 0);
  if (factor == 0.0F) return;  // the step is skipped
  with_type(op.grad.dtype, [&](auto grad) { momentum<decltype(grad)>(op, factor); });
}
void run(const Normalize& op) {
  const float norm = rounded(static_cast<float>(__builtin_sqrt(*row_of<double>(op.sum_squares, 0))));
  const float divisor = norm < op.eps ? op.eps : norm;  // NaN stays
  each_span(1, op.x.numel(), true, [&](Index, Index begin, Index n) {
    const bfloat16* x = row_of<bfloat16>(op.x, 0) + begin;
    bfloat16* y = row_of<bfloat16>(op.y, 0) + begin;
    each_vector(n, [&](Index i, auto lanes) { store(y + i, load(x + i, lanes) / divisor, lanes); });
  });
}
void run(const Blend& op) {
  each_span(1, op.a.numel(), true, [&](Index, Index begin, Index n) {
    const bfloat16* a = row_of<bfloat16>(op.a, 0) + begin;
    const float* b = row_of<float>(op.b, 0) + begin;
    bfloat16* y = row_of<bfloat16>(op.y, 0) + begin;
    each_vector(n, [&](Index i, auto lanes) {
      store(y + i, op.alpha * load(a + i, lanes) + op.beta * load(b + i, lanes), lanes);
    });
  });
}
void run(const MuonApply& op) {
  if (*row_of<float>(op.factor, 0) == 0.0F) return;
  with_type(op.param.dtype, [&](auto type) { apply<decltype(type)>(op); });
}

}  // namespace ms::tensor::MS_ISA
