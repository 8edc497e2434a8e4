// Attention between the two matmuls of its half of a block, and what is done to queries and keys before it.
#include <array>
#include <cmath>

#include "nn/block.h"
#include "nn/context.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

Heads split_heads(const Tensor& qkv, std::int64_t q, std::int64_t kv) {
  return {qkv.slice_cols(0, q), qkv.slice_cols(q, kv), qkv.slice_cols(q + kv, kv)};
}
Heads split_heads(const Tensor& qkv, const Shape& shape) {
  return split_heads(qkv, shape.attn_cols(), shape.kv_cols());
}
// Splits those of a rank's own heads, if ranks of cp exchange them.
Heads split_own_heads(const Tensor& qkv, const Shape& shape) {
  return split_heads(qkv, shape.attn_cols() / shape.cp, shape.kv_cols() / shape.cp);
}

// Returns what attention reads.
Heads attended(const Layer& layer) {
  const Heads heads = split_heads(layer.acts.qkv, layer.on.shape);
  return layer.acts.q ? Heads{layer.acts.q, layer.acts.k, heads.v} : heads;
}

void rotate(const Layer& layer, const Heads& heads, bool inverse) {
  if (!layer.positions.rotary) return;
  const ModelConfig& model = *layer.on.shape.model;
  const std::int64_t parts = layer.on.shape.pieces(), rows = layer.positions.rotary.rows / parts;
  for (const Tensor& x : {heads.q, heads.k}) {
    for (std::int64_t i = 0; i < parts; ++i) {
      const Tensor piece = x.slice_rows(x.rows / parts * i, x.rows / parts);
      const Tensor table = layer.positions.rotary.slice_rows(rows * i, rows);
      layer.on.compute.submit(Rotary{piece, table, rows, model.head_dim(), inverse});
    }
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
  op.heads = shape.attended_heads(), op.kv_heads = shape.attended_kv_heads(), op.head_dim = model.head_dim();
  op.window = model.window;
  op.starts = layer.positions.starts;
  op.first = shape.first;
  op.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(model.head_dim())));
  return op;
}

// Issues the op for each piece of the sequences, whose queries are a part of its rows.
template <class Attention>
void submit_pieces(const Layer& layer, const Attention& whole) {
  for (int i = 0; i < layer.on.shape.pieces(); ++i) {
    auto op = op_of_piece(layer.on.shape, whole, i);
    if constexpr (requires { op.dq; }) op.adds = i > 0;
    layer.on.compute.submit(op);
  }
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

// Attention of the rank's own heads, over whole sequences.
void exchanged_forward(const Layer& layer, const Heads& heads) {
  const ContextScratch& context = layer.scratch.context;
  tokens_to_heads(layer, std::array{heads.q, heads.k, heads.v}, context.all);
  auto op = attention_of<AttentionFwd>(layer, split_own_heads(context.all, layer.on.shape));
  op.o = context.outputs.slice_cols(0, context.outputs.cols / 2);
  layer.on.compute.submit(op);
  heads_to_tokens(layer, op.o, std::array{layer.acts.o});
}

void exchanged_backward(const Layer& layer, const Heads& gradients) {
  const ContextScratch& context = layer.scratch.context;
  const Heads heads = attended(layer);
  tokens_to_heads(layer, std::array{heads.q, heads.k, heads.v}, context.all);
  tokens_to_heads(layer, std::array{layer.acts.o, layer.scratch.dattn}, context.outputs);
  auto op = attention_of<AttentionBwd>(layer, split_own_heads(context.all, layer.on.shape));
  const std::int64_t cols = context.outputs.cols / 2;
  op.o = context.outputs.slice_cols(0, cols), op.dout = context.outputs.slice_cols(cols, cols);
  const Heads own = split_own_heads(context.dall, layer.on.shape);
  op.dq = own.q, op.dk = own.k, op.dv = own.v, op.delta = layer.scratch.delta;
  layer.on.compute.submit(op);
  heads_to_tokens(layer, context.dall, std::array{gradients.q, gradients.k, gradients.v});
}

// With the keys and values of all tokens, if ranks of cp gather them or pass them around.
void own_queries_backward(const Layer& layer, const Heads& gradients) {
  const bool passes = layer.on.shape.passes_keys(), gathers = layer.on.shape.cp > 1 && !passes;
  const Heads heads = attended(layer);
  auto op = attention_of<AttentionBwd>(layer, gathers ? gather_keys(layer, heads) : heads);
  const Tensor& all = layer.scratch.context.dall;
  const std::int64_t cols = gradients.k.cols;
  op.dq = gradients.q;
  op.dk = gathers ? all.slice_cols(0, cols) : gradients.k, op.dv = gathers ? all.slice_cols(cols, cols) : gradients.v;
  op.dout = layer.scratch.dattn, op.delta = layer.scratch.delta;
  if (passes) return pass_keys_backward(layer, op);
  submit_pieces(layer, op);
  if (gathers) reduce_key_gradients(layer, gradients);
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
  if (layer.on.shape.exchanges_heads()) return exchanged_forward(layer, heads);
  if (layer.on.shape.passes_keys()) return pass_keys_forward(layer, attention_of<AttentionFwd>(layer, heads));
  if (layer.on.shape.cp > 1) heads = gather_keys(layer, heads);
  submit_pieces(layer, attention_of<AttentionFwd>(layer, heads));
}

void attention_backward(const Layer& layer) {
  const Heads gradients = split_heads(layer.acts.grads.dqkv, layer.on.shape);
  if (layer.acts.q && layer.on.shape.recompute == Recompute::selective) norm_heads(layer);
  layer.on.shape.exchanges_heads() ? exchanged_backward(layer, gradients) : own_queries_backward(layer, gradients);
  rotate(layer, gradients, true);
  if (layer.acts.q) norm_heads_backward(layer, gradients);
}

}  // namespace ms::nn
