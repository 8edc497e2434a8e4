// LayerNorm, RMSNorm and column sums. A row is read from memory once and then from the nearest cache; sums over rows go
// through blocks of rows (parallel.h).
#include "tensor/cpu/parallel.h"

namespace ms::tensor::MS_ISA {
namespace {

float reciprocal_root(float mean_square, float eps) { return 1.0F / __builtin_sqrtf(mean_square + eps); }

template <class T>
float row_sum(const T* x, Index cols) {
  Vf total{};
  each_vector(cols, [&](Index i, auto lanes) { total += load(x + i, lanes); });
  return sum(total);
}

// Returns the sum of (x - mean)^2.
template <class T>
float row_squares(const T* x, Index cols, float mean) {
  Vf total{};
  each_vector(cols, [&](Index i, auto lanes) {
    const Vf d = keep(load(x + i, lanes) - mean, lanes);
    total += d * d;
  });
  return sum(total);
}

// Runs blocks of rows in parallel, each with its own [sums][cols] partial sums, which are then added up, and to
// out[sum] if that accumulates.
template <int kSums, class Body>
void over_row_blocks(Index rows, Index cols, const Tensor (&out)[kSums], bool accumulate, Body&& body) {
  const RowBlocks blocks(rows);
  const Scratch partials(blocks.count * kSums * cols);
  each_chunk(blocks.count, rows * cols, [&](Index block) {
    float* sums[kSums];
    for (int k = 0; k < kSums; ++k) {
      sums[k] = partials.data() + (k * blocks.count + block) * cols;
      __builtin_memset(sums[k], 0, static_cast<std::size_t>(cols) * 4);
    }
    for (Index row = blocks.begin(block); row < blocks.end(block); ++row) body(row, sums);
  });
  for (int k = 0; k < kSums; ++k) {
    with_type(out[k].dtype, [&](auto type) {
      add_partials(row_of<decltype(type)>(out[k], 0), partials.data() + k * blocks.count * cols, blocks.count, cols,
                   accumulate);
    });
  }
}

// dx (+)= rstd * (dy gain - shift - xhat * slope), where xhat = (x - mean) * rstd.
template <bool kAccumulate, class T>
void write_gradient(T* dx, const T* dy, const T* x, const T* gain, Index cols, float mean, float rstd, float shift,
                    float slope) {
  each_vector(cols, [&](Index i, auto lanes) {
    const Vf xhat = (load(x + i, lanes) - mean) * rstd;
    const Vf g = unfused(load(dy + i, lanes) * load(gain + i, lanes) - shift) - xhat * slope;
    store(dx + i, kAccumulate ? rstd * g + load(dx + i, lanes) : rstd * g, lanes);
  });
}
template <class T>
void write_gradient(T* dx, const T* dy, const T* x, const T* gain, Index cols, float mean, float rstd, float shift,
                    float slope, bool accumulate) {
  const auto write = accumulate ? write_gradient<true, T> : write_gradient<false, T>;
  write(dx, dy, x, gain, cols, mean, rstd, shift, slope);
}

// Returns a row of x, after adding up the residual terms if there are any.
template <class T>
T* row_of_sum(const Tensor& x, const Residual& residual, Index row) {
  T* out = row_of<T>(x, row);
  if (!residual) return out;
  const T* a = row_of<T>(residual.a, row);
  const T* b = row_of<T>(residual.b, row);
  const T* bias = residual.bias ? row_of<T>(residual.bias, 0) : nullptr;
  each_vector(x.cols, [&](Index i, auto lanes) {
    Vf sum = load(a + i, lanes) + load(b + i, lanes);
    if (bias != nullptr) sum += load(bias + i, lanes);
    store(out + i, sum, lanes);
  });
  return out;
}

template <class T>
void layernorm_fwd(const LayerNormFwd& op) {
  const Index cols = op.x.cols;
  each_chunk(op.x.rows, op.x.numel(), [&](Index row) {
    const T* x = row_of_sum<T>(op.x, op.residual, row);
    const T* gain = row_of<T>(op.gain, 0);
    const T* bias = row_of<T>(op.bias, 0);
    T* y = row_of<T>(op.y, row);
    const float mean = row_sum(x, cols) / static_cast<float>(cols);
    const float rstd = reciprocal_root(row_squares(x, cols, mean) / static_cast<float>(cols), op.eps);
    row_of<float>(op.mean, 0)[row] = mean;
    row_of<float>(op.rstd, 0)[row] = rstd;
    each_vector(cols, [&](Index i, auto lanes) {
      store(y + i, (load(x + i, lanes) - mean) * rstd * load(gain + i, lanes) + load(bias + i, lanes), lanes);
    });
  });
}

template <class T>
void layernorm_bwd(const LayerNormBwd& op) {
  const Index cols = op.x.cols;
  over_row_blocks<2>(op.x.rows, cols, {op.dgain, op.dbias}, true, [&](Index row, float* const(&sums)[2]) {
    const T* x = row_of<T>(op.x, row);
    const T* dy = row_of<T>(op.dy, row);
    const T* gain = row_of<T>(op.gain, 0);
    const float mean = row_of<float>(op.mean, 0)[row];
    const float rstd = row_of<float>(op.rstd, 0)[row];
    float* dgain = sums[0];
    float* dbias = sums[1];
    Vf plain{}, along{};  // sums of dy gain, and of that times xhat
    each_vector(cols, [&](Index i, auto lanes) {
      const Vf d = load(dy + i, lanes);
      const Vf xhat = (load(x + i, lanes) - mean) * rstd;
      const Vf g = d * load(gain + i, lanes);
      plain += g;
      along += keep(g * xhat, lanes);
      store(dgain + i, load(dgain + i, lanes) + d * xhat, lanes);
      store(dbias + i, load(dbias + i, lanes) + d, lanes);
    });
    write_gradient(row_of<T>(op.dx, row), dy, x, gain, cols, mean, rstd, sum(plain) / static_cast<float>(cols),
                   sum(along) / static_cast<float>(cols), op.accumulate);
  });
}

// Returns head `row` of all heads of all rows.
template <class T>
T* head_of(const Tensor& x, Index heads, Index row) {
  return row_of<T>(x, row / heads) + row % heads * (x.cols / heads);
}

template <class T>
void rmsnorm_fwd(const RmsNormFwd& op) {
  const Index heads = op.heads, cols = op.x.cols / heads;
  each_chunk(op.x.rows * heads, op.x.numel(), [&](Index row) {
    const T* x = heads == 1 ? row_of_sum<T>(op.x, op.residual, row) : head_of<T>(op.x, heads, row);
    const T* gain = row_of<T>(op.gain, 0);
    T* y = head_of<T>(op.y, heads, row);
    const float rstd = reciprocal_root(row_squares(x, cols, 0.0F) / static_cast<float>(cols), op.eps);
    row_of<float>(op.rstd, 0)[row] = rstd;
    each_vector(cols,
                [&](Index i, auto lanes) { store(y + i, load(x + i, lanes) * rstd * load(gain + i, lanes), lanes); });
  });
}

template <class T>
void rmsnorm_bwd(const RmsNormBwd& op) {
  const Index heads = op.heads, cols = op.x.cols / heads;
  over_row_blocks<1>(op.x.rows * heads, cols, {op.dgain}, true, [&](Index row, float* const(&sums)[1]) {
    const T* x = head_of<T>(op.x, heads, row);
    const T* dy = head_of<T>(op.dy, heads, row);
    const T* gain = row_of<T>(op.gain, 0);
    const float rstd = row_of<float>(op.rstd, 0)[row];
    float* dgain = sums[0];
    Vf along{};
    each_vector(cols, [&](Index i, auto lanes) {
      const Vf d = load(dy + i, lanes);
      const Vf xhat = load(x + i, lanes) * rstd;
      along += d * load(gain + i, lanes) * xhat;
      store(dgain + i, load(dgain + i, lanes) + d * xhat, lanes);
    });
    write_gradient(head_of<T>(op.dx, heads, row), dy, x, gain, cols, 0.0F, rstd, 0.0F,
                   sum(along) / static_cast<float>(cols), op.accumulate);
  });
}

template <class T>
void column_sum(const ColumnSum& op) {
  const Index cols = op.x.cols;
  over_row_blocks<1>(op.x.rows, cols, {op.out}, op.accumulate, [&](Index row, float* const(&sums)[1]) {
    const T* x = row_of<T>(op.x, row);
    float* total = sums[0];
    each_vector(cols,
                [&](Index i, auto lanes) { store(total + i, load(total + i, lanes) + load(x + i, lanes), lanes); });
  });
}

}  // namespace

void run(const LayerNormFwd& op) {
  with_type(op.x.dtype, [&](auto type) { layernorm_fwd<decltype(type)>(op); });
}
void run(const LayerNormBwd& op) {
  with_type(op.x.dtype, [&](auto type) { layernorm_bwd<decltype(type)>(op); });
}
void run(const RmsNormFwd& op) {
  with_type(op.x.dtype, [&](auto type) { rmsnorm_fwd<decltype(type)>(op); });
}
void run(const RmsNormBwd& op) {
  with_type(op.x.dtype, [&](auto type) { rmsnorm_bwd<decltype(type)>(op); });
}
void run(const ColumnSum& op) {
  with_type(op.x.dtype, [&](auto type) { column_sum<decltype(type)>(op); });
}

}  // namespace ms::tensor::MS_ISA
