// Attention between the two matmuls of its half of a block, and what is done to queries and keys before it.
#include <cmath>

#include "nn/block.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

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

}  // namespace ms::nn
