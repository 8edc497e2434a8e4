// Ops that reduce over many elements: the vocabulary-parallel loss, sums in f64, reductions over ranks of this process.
#include "tensor/cpu/wide_sums.h"

namespace ms::tensor::MS_ISA {
namespace {

constexpr Index kLossChunk = 2048;  // logits that are read twice, the second time from the nearest cache

// A row is read from memory once, chunk by chunk; the sum so far is rescaled when the maximum changes.
template <class T>
void loss_stats(const LossStats& op) {
  each_chunk(op.logits.rows, op.logits.rows * op.valid, [&](Index row) {
    const T* logits = row_of<T>(op.logits, row);
    float top = -__builtin_inff(), total = 0;
    for (Index begin = 0; begin < op.valid; begin += kLossChunk) {
      const T* chunk = logits + begin;
      const Index n = least(kLossChunk, op.valid - begin);
      Vf tops = splat(top);
      each_vector(n, [&](Index i, auto lanes) { tops = max(keep(load(chunk + i, lanes), lanes, tops), tops); });
      const float before = top;
      top = max(tops);
      Vf sums{};
      each_vector(n, [&](Index i, auto lanes) { sums += keep(exp(load(chunk + i, lanes) - top), lanes); });
      const Vf rescale = exp(splat(before - top));
      total = total * rescale[0] + sum(sums);
    }
    const Index target = row_of<std::int32_t>(op.targets, 0)[row] - op.first;
    row_of<float>(op.stats, 0)[row] = top;
    row_of<float>(op.stats, 1)[row] = total;
    row_of<float>(op.stats, 2)[row] = target >= 0 && target < op.valid ? get(logits + target) : 0.0F;
  });
}

template <class T>
void loss_backward(const LossBackward& op) {
  each_chunk(op.logits.rows, op.logits.numel(), [&](Index row) {
    T* logits = row_of<T>(op.logits, row);
    const float lse = row_of<float>(op.lse, 0)[row];
    const std::int32_t id = row_of<std::int32_t>(op.targets, 0)[row];
    if (id < 0) {
      each_vector(op.logits.cols, [&](Index i, auto lanes) { store(logits + i, Vf{}, lanes); });
      return;
    }
    const Index target = id - op.first;
    const bool here = target >= 0 && target < op.valid;
    const Vf logit = splat(here ? get(logits + target) : 0.0F);
    const float weight = op.z == 0.0F ? 1.0F : 1.0F + 2.0F * op.z * lse, scale = op.scale * weight;
    each_vector(op.valid,
                [&](Index i, auto lanes) { store(logits + i, scale * exp(load(logits + i, lanes) - lse), lanes); });
    if (here) put(logits + target, op.scale * (weight * exp(logit - lse)[0] - 1.0F));
    for (Index i = op.valid; i < op.logits.cols; ++i) put(logits + i, 0.0F);
  });
}

template <class RowSum>
double sum_rows(const Tensor& x, RowSum&& row_sum) {
  if (is_flat(x)) return sum_flat(x.numel(), [&](Index begin, Index n) { return row_sum(Index{0}, begin, n); });
  double total = 0;
  for (Index row = 0; row < x.rows; ++row) total += row_sum(row, Index{0}, x.cols);
  return total;
}

template <ReduceKind kKind>
MS_INLINE auto combine(auto a, auto b) {
  if constexpr (kKind == ReduceKind::sum) {
    return a + b;
  } else {
    return b > a || b != b ? b : a;  // a NaN is the maximum
  }
}

template <ReduceKind kKind, class T>
void reduce_all(T* out, const T* const* in, int count, Index n) {
  each_span(1, n, true, [&](Index, Index begin, Index size) {
    if constexpr (requires { load(out); }) {
      each_vector(size, [&](Index i, auto lanes) {
        Vf x = load(in[0] + begin + i, lanes);
        for (int k = 1; k < count; ++k) {
          const Vf y = load(in[k] + begin + i, lanes);
          if constexpr (kKind == ReduceKind::sum) {
            x += y;
          } else {
            x = ((y > x) | (y != y)) ? y : x;
          }
        }
        store(out + begin + i, x, lanes);
      });
    } else {
      for (Index i = begin; i < begin + size; ++i) {
        T x = in[0][i];
        for (int k = 1; k < count; ++k) x = combine<kKind>(x, in[k][i]);
        out[i] = x;
      }
    }
  });
}

template <class T>
void reduce_typed(ReduceKind kind, void* out, const void* const* in, int count, Index n) {
  auto* to = static_cast<T*>(out);
  const auto* from = reinterpret_cast<const T* const*>(in);
  if (kind == ReduceKind::sum) {
    reduce_all<ReduceKind::sum>(to, from, count, n);
  } else {
    reduce_all<ReduceKind::max>(to, from, count, n);
  }
}

}  // namespace

void run(const LossStats& op) {
  with_type(op.logits.dtype, [&](auto type) { loss_stats<decltype(type)>(op); });
}
void run(const LossBackward& op) {
  with_type(op.logits.dtype, [&](auto type) { loss_backward<decltype(type)>(op); });
}
void run(const SumInto& op) {
  const double total = sum_rows(op.x, [&](Index row, Index begin, Index n) {
    return op.x.dtype == DType::f64 ? sum_f64(row_of<double>(op.x, row) + begin, n)
                                    : sum_wide<false>(row_of<float>(op.x, row) + begin, n);
  });
  *row_of<double>(op.out, 0) += op.scale * total;
}
void run(const SumSquares& op) {
  with_type(op.x.dtype, [&](auto type) {
    *row_of<double>(op.out, 0) += sum_rows(op.x, [&](Index row, Index begin, Index n) {
      return sum_wide<true>(row_of<decltype(type)>(op.x, row) + begin, n);
    });
  });
}
void reduce(ReduceKind kind, DType dtype, void* out, const void* const* in, int count, std::int64_t n) {
  switch (dtype) {
    case DType::f32: return reduce_typed<float>(kind, out, in, count, n);
    case DType::bf16: return reduce_typed<bfloat16>(kind, out, in, count, n);
    case DType::f64: return reduce_typed<double>(kind, out, in, count, n);
    case DType::i32: return reduce_typed<std::int32_t>(kind, out, in, count, n);
  }
}

}  // namespace ms::tensor::MS_ISA
