#include "nn/layer.h"

#include <cmath>

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

LayerScratch carve_scratch(Arena& arena, const Shape& shape) {
  const std::int64_t tokens = shape.tokens(), rows = shape.shard_tokens(), hidden = shape.model->hidden;
  const DType dtype = shape.dtype;
  LayerScratch scratch;
  if (shape.recompute != Recompute::none) {
    // What a policy does not keep: taken with the same shapes as the kept ones.
    Shape keep_all = shape;
    keep_all.recompute = Recompute::none;
    if (shape.recompute == Recompute::full) {
      scratch.acts = carve_acts(arena, keep_all, scratch);
    } else {
      scratch.acts.n1 = arena.take(dtype, rows, hidden);
      scratch.acts.n2 = scratch.acts.n1;  // never needed at once
      scratch.acts.act = arena.take(dtype, tokens, shape.ffn_cols());
    }
  }
  const bool gathers = shape.sequence_parallel && shape.tp > 1;
  if (gathers) {
    scratch.gathered = arena.take(dtype, tokens, hidden);
    scratch.reduced = arena.take(dtype, rows, hidden);
    scratch.dout = arena.take(dtype, tokens, hidden);
  }
  scratch.partial = arena.take(dtype, tokens, hidden);
  scratch.dact = arena.take(dtype, tokens, shape.ffn_cols());
  scratch.dup = shape.model->gated() ? arena.take(dtype, tokens, shape.up_cols()) : scratch.dact;
  scratch.dattn = arena.take(dtype, tokens, shape.attn_cols());
  scratch.dqkv = arena.take(dtype, tokens, shape.qkv_cols());
  scratch.delta = arena.take(DType::f32, shape.batch * shape.heads(), shape.model->seq);
  return scratch;
}

LayerActs carve_acts(Arena& slot, const Shape& shape, const LayerScratch& scratch) {
  const std::int64_t tokens = shape.tokens(), rows = shape.shard_tokens(), hidden = shape.model->hidden;
  const DType dtype = shape.dtype;
  LayerActs acts;
  if (shape.recompute == Recompute::full) {
    acts = scratch.acts;
    acts.x = slot.take(dtype, rows, hidden);
    return acts;
  }
  const bool keep_cheap = shape.recompute == Recompute::none;
  acts.x = slot.take(dtype, rows, hidden);
  acts.n1 = keep_cheap ? slot.take(dtype, rows, hidden) : scratch.acts.n1;
  acts.n2 = keep_cheap ? slot.take(dtype, rows, hidden) : scratch.acts.n2;
  acts.act = keep_cheap ? slot.take(dtype, tokens, shape.ffn_cols()) : scratch.acts.act;
  if (shape.model->is_gpt()) {
    acts.mean1 = slot.take(DType::f32, 1, rows);
    acts.mean2 = slot.take(DType::f32, 1, rows);
  }
  acts.rstd1 = slot.take(DType::f32, 1, rows);
  acts.rstd2 = slot.take(DType::f32, 1, rows);
  acts.qkv = slot.take(dtype, tokens, shape.qkv_cols());
  acts.o = slot.take(dtype, tokens, shape.attn_cols());
  acts.lse = slot.take(DType::f32, shape.batch * shape.heads(), shape.model->seq);
  acts.mid = slot.take(dtype, rows, hidden);
  acts.up = slot.take(dtype, tokens, shape.up_cols());
  return acts;
}

void norm_forward(Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& x,
                  const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const auto eps = static_cast<float>(model.norm_eps);
  if (model.is_gpt()) {
    stream.submit(LayerNormFwd{y, mean, rstd, x, weights.gain.value, weights.bias.value, eps});
  } else {
    stream.submit(RmsNormFwd{y, rstd, x, weights.gain.value, eps});
  }
}

void norm_backward(Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& dx,
                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd, bool accumulate) {
  if (model.is_gpt()) {
    stream.submit(
        LayerNormBwd{dx, weights.gain.grad, weights.bias.grad, dy, x, mean, rstd, weights.gain.value, accumulate});
  } else {
    stream.submit(RmsNormBwd{dx, weights.gain.grad, dy, x, rstd, weights.gain.value, accumulate});
  }
}

namespace {

void weight_gradient(Stream& stream, const Weight& weight, const Tensor& dy, const Tensor& x) {
  stream.submit(Matmul{.c = weight.grad, .a = dy, .b = x, .bias = {}, .transpose_a = true, .accumulate = true});
}
void bias_gradient(Stream& stream, const Weight& bias, const Tensor& dy) {
  if (bias.grad) stream.submit(ColumnSum{bias.grad, dy});
}

// The q, k and v columns of a packed [T,Q].
struct Heads {
  Tensor q, k, v;
};
Heads split_heads(const Tensor& qkv, const Shape& shape) {
  const std::int64_t q = shape.attn_cols(), kv = shape.kv_heads() * shape.model->head_dim();
  return {qkv.slice_cols(0, q), qkv.slice_cols(q, kv), qkv.slice_cols(q + kv, kv)};
}

void rotate(Stream& stream, const Heads& heads, const Shape& shape, const Tensor& table, bool inverse) {
  if (!table) return;
  for (const Tensor& x : {heads.q, heads.k}) {
    stream.submit(Rotary{x, table, shape.model->seq, shape.model->head_dim(), inverse});
  }
}

float attention_scale(const Shape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.model->head_dim())));
}

void activation_forward(Stream& stream, const ModelConfig& model, const LayerActs& acts) {
  if (model.gated()) {
    stream.submit(SwigluFwd{acts.act, acts.up});
  } else {
    stream.submit(GeluFwd{acts.act, acts.up});
  }
}

void attention_half(const TensorParallel& on, const LayerWeights& weights, const LayerActs& acts, const Tensor& rotary,
                    LayerScratch& scratch) {
  const Shape& shape = on.shape;
  const ModelConfig& model = *shape.model;
  norm_forward(on.compute, model, weights.norm1, acts.x, acts.n1, acts.mean1, acts.rstd1);
  on.gather_product(acts.qkv, acts.n1, scratch.gathered, weights.qkv.value, weights.qkv_bias.value, true);
  const Heads heads = split_heads(acts.qkv, shape);
  rotate(on.compute, heads, shape, rotary, false);
  on.compute.submit(AttentionFwd{.o = acts.o,
                                 .lse = acts.lse,
                                 .q = heads.q,
                                 .k = heads.k,
                                 .v = heads.v,
                                 .batch = shape.batch,
                                 .seq = model.seq,
                                 .heads = shape.heads(),
                                 .kv_heads = shape.kv_heads(),
                                 .head_dim = model.head_dim(),
                                 .window = 0,
                                 .scale = attention_scale(shape)});
  const Tensor reduced =
      on.arrived(on.product_reduce(scratch.partial, scratch.reduced, acts.o, weights.out.value, true));
  on.compute.submit(Add{acts.mid, acts.x, reduced, weights.out_bias.value});
}

// acts.mid -> acts.act: the feed-forward layer up to its second product.
void feed_forward_half(const TensorParallel& on, const LayerWeights& weights, const LayerActs& acts,
                       const LayerScratch& scratch) {
  const ModelConfig& model = *on.shape.model;
  norm_forward(on.compute, model, weights.norm2, acts.mid, acts.n2, acts.mean2, acts.rstd2);
  on.gather_product(acts.up, acts.n2, scratch.gathered, weights.up.value, weights.up_bias.value, true);
  activation_forward(on.compute, model, acts);
}

}  // namespace

void layer_forward(const TensorParallel& on, const LayerWeights& weights, const LayerActs& acts, const Tensor& rotary,
                   LayerScratch& scratch, const Tensor& out) {
  attention_half(on, weights, acts, rotary, scratch);
  feed_forward_half(on, weights, acts, scratch);
  const Tensor reduced =
      on.arrived(on.product_reduce(scratch.partial, scratch.reduced, acts.act, weights.down.value, true));
  on.compute.submit(Add{out, acts.mid, reduced, weights.down_bias.value});
}

void layer_backward(const TensorParallel& on, const LayerWeights& weights, const LayerActs& acts, const Tensor& rotary,
                    LayerScratch& scratch, const Tensor& dx) {
  const Shape& shape = on.shape;
  const ModelConfig& model = *shape.model;
  Stream& compute = on.compute;
  if (shape.recompute == Recompute::full) {
    // Everything up to the activation again; the layer's output is not needed.
    attention_half(on, weights, acts, rotary, scratch);
    feed_forward_half(on, weights, acts, scratch);
  } else if (shape.recompute == Recompute::selective) {
    norm_forward(compute, model, weights.norm2, acts.mid, acts.n2, acts.mean2, acts.rstd2);
    activation_forward(compute, model, acts);
  }

  bias_gradient(compute, weights.down_bias, dx);
  const Tensor dmlp = on.gather_product(scratch.dact, dx, scratch.dout, weights.down.value, {}, false);
  weight_gradient(compute, weights.down, dmlp, acts.act);
  if (model.gated()) {
    compute.submit(SwigluBwd{scratch.dup, scratch.dact, acts.up});
  } else {
    compute.submit(GeluBwd{scratch.dup, scratch.dact, acts.up});
  }
  // The input is gathered again under the product, and the product's result reduced under the weight's gradient.
  const Arriving n2 = on.gather(acts.n2, scratch.gathered);
  const Arriving dn2 = on.product_reduce(scratch.partial, scratch.reduced, scratch.dup, weights.up.value, false);
  weight_gradient(compute, weights.up, scratch.dup, on.arrived(n2));
  bias_gradient(compute, weights.up_bias, scratch.dup);
  norm_backward(compute, model, weights.norm2, dx, on.arrived(dn2), acts.mid, acts.mean2, acts.rstd2, true);

  if (shape.recompute == Recompute::selective) {
    norm_forward(compute, model, weights.norm1, acts.x, acts.n1, acts.mean1, acts.rstd1);
  }
  bias_gradient(compute, weights.out_bias, dx);
  const Tensor dattention = on.gather_product(scratch.dattn, dx, scratch.dout, weights.out.value, {}, false);
  weight_gradient(compute, weights.out, dattention, acts.o);
  const Heads heads = split_heads(acts.qkv, shape), dheads = split_heads(scratch.dqkv, shape);
  compute.submit(AttentionBwd{.dq = dheads.q,
                              .dk = dheads.k,
                              .dv = dheads.v,
                              .dout = scratch.dattn,
                              .o = acts.o,
                              .lse = acts.lse,
                              .q = heads.q,
                              .k = heads.k,
                              .v = heads.v,
                              .delta = scratch.delta,
                              .batch = shape.batch,
                              .seq = model.seq,
                              .heads = shape.heads(),
                              .kv_heads = shape.kv_heads(),
                              .head_dim = model.head_dim(),
                              .window = 0,
                              .scale = attention_scale(shape)});
  rotate(compute, dheads, shape, rotary, true);
  const Arriving n1 = on.gather(acts.n1, scratch.gathered);
  const Arriving dn1 = on.product_reduce(scratch.partial, scratch.reduced, scratch.dqkv, weights.qkv.value, false);
  weight_gradient(compute, weights.qkv, scratch.dqkv, on.arrived(n1));
  bias_gradient(compute, weights.qkv_bias, scratch.dqkv);
  norm_backward(compute, model, weights.norm1, dx, on.arrived(dn1), acts.x, acts.mean1, acts.rstd1, true);
}

}  // namespace ms::nn
