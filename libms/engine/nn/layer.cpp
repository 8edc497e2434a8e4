#include "nn/layer.h"

#include <cmath>

#include "nn/block.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

void norm_forward(Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& x,
                  const Tensor& y, const Tensor& mean, const Tensor& rstd, const Residual& residual,
                  const Tensor& amax) {
  if (residual && !model.fused) {
    stream.submit(Add{x, residual.a, residual.b, residual.bias});
    return norm_forward(stream, model, weights, x, y, mean, rstd, {}, amax);
  }
  const auto eps = static_cast<float>(model.norm_eps);
  if (model.has_layer_norm()) {
    stream.submit(LayerNormFwd{y, mean, rstd, x, weights.gain.value, weights.bias.value, eps, residual, amax});
  } else {
    stream.submit(RmsNormFwd{y, rstd, x, weights.gain.value, eps, residual, 1, amax});
  }
}

void norm_backward(Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& dx,
                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd, bool accumulate,
                   const Tensor& amax) {
  if (model.has_layer_norm()) {
    stream.submit(LayerNormBwd{dx, weights.gain.grad, weights.bias.grad, dy, x, mean, rstd, weights.gain.value,
                               accumulate, amax});
  } else {
    stream.submit(RmsNormBwd{dx, weights.gain.grad, dy, x, rstd, weights.gain.value, accumulate, 1, amax});
  }
}

namespace {

// The q, k and v columns of a [T,Q].
struct Heads {
  Tensor q, k, v;
};
Heads split_heads(const Tensor& qkv, const Shape& shape) {
  const std::int64_t q = shape.attn_cols(), kv = shape.kv_cols();
  return {qkv.slice_cols(0, q), qkv.slice_cols(q, kv), qkv.slice_cols(q + kv, kv)};
}

// Returns what attention reads.
Heads attended(const Layer& layer) {
  const Heads heads = split_heads(layer.acts.qkv, layer.on.shape);
  return layer.acts.q ? Heads{layer.acts.q, layer.acts.k, heads.v} : heads;
}

void rotate(const Layer& layer, const Heads& heads, bool inverse) {
  if (!layer.positions.rotary) return;
  const ModelConfig& model = *layer.on.shape.model;
  for (const Tensor& x : {heads.q, heads.k}) {
    const Tensor& table = layer.positions.rotary;
    layer.on.compute.submit(Rotary{x, table, table.rows, model.head_dim(), inverse});
  }
}

void norm_heads(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Heads raw = split_heads(acts.qkv, on.shape);
  const auto eps = static_cast<float>(on.shape.model->norm_eps);
  on.compute.submit(RmsNormFwd{acts.q, acts.rstd_q, raw.q, weights.q_norm.gain.value, eps, {}, on.shape.heads()});
  on.compute.submit(RmsNormFwd{acts.k, acts.rstd_k, raw.k, weights.k_norm.gain.value, eps, {}, on.shape.kv_heads()});
  rotate(layer, {acts.q, acts.k, {}}, false);
}

void norm_heads_backward(const Layer& layer, const Heads& gradients) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Heads raw = split_heads(acts.qkv, on.shape);
  const auto norm = [&on = on](const Tensor& d, const Tensor& x, const Tensor& rstd, const Weight& gain,
                               std::int64_t heads) {
    on.compute.submit(RmsNormBwd{d, gain.grad, d, x, rstd, gain.value, false, heads});
  };
  norm(gradients.q, raw.q, acts.rstd_q, weights.q_norm.gain, on.shape.heads());
  norm(gradients.k, raw.k, acts.rstd_k, weights.k_norm.gain, on.shape.kv_heads());
}

// Returns the fields that AttentionFwd and AttentionBwd share.
template <class Attention>
Attention attention_of(const Layer& layer, const Heads& heads) {
  const Shape& shape = layer.on.shape;
  const ModelConfig& model = *shape.model;
  Attention op;
  op.o = layer.acts.o, op.lse = layer.acts.lse;
  op.q = heads.q, op.k = heads.k, op.v = heads.v;
  op.batch = shape.batch, op.seq = model.seq;
  op.heads = shape.heads(), op.kv_heads = shape.kv_heads(), op.head_dim = model.head_dim();
  op.window = model.window;
  op.starts = layer.positions.starts;
  if constexpr (requires { op.first; }) op.first = shape.first;
  op.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(model.head_dim())));
  return op;
}

// Adds the keys and values of the shape's rows to the cache. Returns the heads with those of all positions.
Heads cached(const Layer& layer, const Heads& heads) {
  const Shape& shape = layer.on.shape;
  const Tensor& cache = layer.positions.cache;
  const Tensor keys = cache.slice_cols(0, shape.kv_cols()), values = cache.slice_cols(shape.kv_cols(), shape.kv_cols());
  layer.on.compute.submit(Copy{keys.slice_rows(shape.first, shape.queries()), heads.k});
  layer.on.compute.submit(Copy{values.slice_rows(shape.first, shape.queries()), heads.v});
  return {heads.q, keys, values};
}

}  // namespace

void attention_forward(const Layer& layer) {
  Heads heads = attended(layer);
  if (layer.acts.q) {
    norm_heads(layer);
  } else {
    rotate(layer, heads, false);
  }
  if (layer.positions.cache) heads = cached(layer, heads);
  layer.on.compute.submit(attention_of<AttentionFwd>(layer, heads));
}

void attention_backward(const Layer& layer) {
  const Heads gradients = split_heads(layer.acts.grads.dqkv, layer.on.shape);
  if (layer.acts.q && layer.on.shape.recompute == Recompute::selective) norm_heads(layer);
  auto op = attention_of<AttentionBwd>(layer, attended(layer));
  op.dq = gradients.q, op.dk = gradients.k, op.dv = gradients.v;
  op.dout = layer.scratch.dattn, op.delta = layer.scratch.delta;
  layer.on.compute.submit(op);
  rotate(layer, gradients, true);
  if (layer.acts.q) norm_heads_backward(layer, gradients);
}

Tensor activation_amax(const Layer& layer) { return layer.on.fused_amax(layer.acts.amax.act); }

void activation_forward(const Layer& layer) {
  const Tensor amax = activation_amax(layer);
  const SharedExperts& shared = layer.acts.shared;
  if (shared.act) layer.on.compute.submit(SwigluFwd{shared.act, shared.up, {}, shared.gate.weights});
  if (layer.on.shape.model->gated()) {
    layer.on.compute.submit(SwigluFwd{layer.acts.act, layer.acts.up, amax, expert_weights(layer)});
  } else {
    layer.on.compute.submit(GeluFwd{layer.acts.act, layer.acts.up, amax, layer.on.shape.model->exact_gelu});
  }
}

Tensor activation_gradient_amax(const Layer& layer) {
  return layer.on.shape.joins_gelu() ? Tensor{} : layer.on.fused_amax(layer.acts.amax.dup);
}

Tensor sums_of_rounding(const Layer& layer, const Tensor& rounded, const Weight& bias) {
  return layer.on.shape.model->fused && rounded ? bias.grad : Tensor{};
}

Operand up_gradient(const Layer& layer) {
  const Tensor& rounded = layer.acts.grads.rounded.dup;
  return {layer.acts.grads.dup, layer.acts.amax.dup, rounded, sums_of_rounding(layer, rounded, layer.weights.up_bias)};
}
Operand qkv_gradient(const Layer& layer) {
  const Tensor& rounded = layer.acts.grads.rounded.dqkv;
  return {layer.acts.grads.dqkv, layer.acts.amax.dqkv, rounded,
          sums_of_rounding(layer, rounded, layer.weights.qkv_bias)};
}

Tensor activation_backward(const Layer& layer, const Tensor& dx, const Tensor& into, bool has_amax) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  Matmul matmul = gradient_matmul(scratch.dact, {{}, acts.amax.dout, acts.grads.rounded.dout}, weights.down);
  const Tensor sums = sums_of_rounding(layer, acts.grads.rounded.dout, weights.down_bias);
  if (on.shape.joins_gelu()) {
    matmul.c = acts.grads.dup, matmul.gelu_x = acts.up;
    return on.gather_matmul(matmul, dx, into, has_amax, sums);
  }
  const Tensor dout = on.gather_matmul(matmul, dx, into, has_amax, sums);
  const Tensor amax = activation_gradient_amax(layer);
  if (on.shape.model->gated()) {
    on.compute.submit(SwigluBwd{acts.grads.dup, scratch.dact, acts.up, amax});
  } else {
    on.compute.submit(GeluBwd{acts.grads.dup, scratch.dact, acts.up, amax, on.shape.model->exact_gelu});
  }
  return dout;
}

Matmul forward_matmul(const Tensor& c, const Operand& x, const Weight& weight, const Weight& bias) {
  return {.c = c,
          .a = x.value,
          .b = weight.value,
          .bias = bias.value,
          .transpose_b = true,
          .a_amax = x.amax,
          .b_amax = weight.rounded.amax,
          .b_rounded = weight.rounded.value};
}

Matmul gradient_matmul(const Tensor& c, const Operand& dy, const Weight& weight) {
  return {.c = c,
          .a = dy.value,
          .b = weight.value,
          .a_amax = dy.amax,
          .b_amax = weight.rounded.amax,
          .a_rounded = dy.rounded,
          .b_rounded = weight.rounded.value};
}

void weight_gradient(const Layer& layer, const Weight& weight, const Operand& dy, const Operand& x, const Weight& bias,
                     const Tensor& summed) {
  const TensorParallel& on = layer.on;
  const bool joins_sums = on.shape.model->fused && !on.fp8 && summed.rows == dy.value.rows;
  if (bias.grad && !joins_sums && !dy.sums) on.compute.submit(ColumnSum{bias.grad, summed, !on.sets_gradients});
  on.compute.submit(Matmul{.c = weight.grad,
                           .a = dy.value,
                           .b = x.value,
                           .transpose_a = true,
                           .accumulate = !on.sets_gradients,
                           .operands = on.operands(true),
                           .a_sums = joins_sums ? bias.grad : Tensor{},
                           .a_amax = dy.amax,
                           .b_amax = x.amax,
                           .a_rounded = dy.rounded});
}

Tensor own_rows(const Layer& layer, const Tensor& gathered) {
  const Shape& shape = layer.on.shape;
  const std::int64_t rows = shape.shard_tokens();
  return rows == shape.tokens() ? gathered : gathered.slice_rows(shape.tp_rank * rows, rows);
}

void keep_gradient(const Layer& layer, const Tensor& into, const Tensor& gathered) {
  if (gathered.data != into.data) layer.on.compute.submit(Copy{into, gathered});
}

void round_weights(Stream& stream, const LayerWeights& weights) {
  for (const Weight& weight : {weights.qkv, weights.out, weights.up, weights.down, weights.in}) {
    const auto& [value, amax] = weight.rounded;
    if (value) stream.submit(RoundToFp8{value, amax, weight.value});
  }
}

Residual layer_forward(const Layer& layer, const Residual& residual) {
  return layer.on.shape.model->parallel_block ? parallel_forward(layer, residual) : serial_forward(layer, residual);
}

void layer_backward(const Layer& layer, const Tensor& dx, WeightGradients when, const GradientAmaxes& amaxes,
                    double loss_scale) {
  MS_ASSERT(when == WeightGradients::now || layer.on.shape.split_backward, "nothing is kept for later");
  return layer.on.shape.model->parallel_block ? parallel_backward(layer, dx, when, amaxes)
                                              : serial_backward(layer, dx, when, amaxes, loss_scale);
}

void layer_weight_gradients(const Layer& layer) {
  return layer.on.shape.model->parallel_block ? parallel_weight_gradients(layer) : serial_weight_gradients(layer);
}

}  // namespace ms::nn
