// Carves a layer's activations and the layers' shared scratch from arenas.
#include <algorithm>

#include "nn/layer.h"

namespace ms::nn {
namespace {

// Q and U columns of a parallel block side by side, as one matmul computes them.
struct FusedInput {
  Tensor both, qkv, up;
};
FusedInput take_fused_input(Arena& arena, const Shape& shape) {
  const Tensor both = arena.take(shape.dtype, shape.tokens(), shape.qkv_cols() + shape.up_cols());
  return {both, both.slice_cols(0, shape.qkv_cols()), both.slice_cols(shape.qkv_cols(), shape.up_cols())};
}

// Unless the backward is split, all layers share them: `dout` takes both gathered gradients, one after the other, and
// the gradient of a GELU that is an op of its own is computed in place of `dact`.
LayerGrads carve_grads(Arena& arena, const Shape& shape, const Tensor& dact, const Tensor& dout) {
  const bool splits = shape.split_backward;
  const auto take = [&](std::int64_t cols) { return arena.take(shape.dtype, shape.tokens(), cols); };
  LayerGrads grads;
  auto& rounded = grads.rounded;
  const bool rounds = shape.fp8 && !splits && shape.tp == 1;
  if (rounds) rounded.dout = rounded.dmid = take(shape.model->hidden);
  grads.dout = splits ? take(shape.model->hidden) : dout;
  if (shape.model->parallel_block) {
    const FusedInput input = take_fused_input(arena, shape);
    grads.din = input.both, grads.dqkv = input.qkv, grads.dup = input.up;
    if (!rounds) return grads;
    rounded.din = take(shape.qkv_cols() + shape.up_cols());
    const Tensor flat = rounded.din.flat();
    const std::int64_t qkv = shape.tokens() * shape.qkv_cols();
    rounded.dqkv = flat.slice_cols(0, qkv).reshape(shape.tokens(), shape.qkv_cols());
    rounded.dup = flat.slice_cols(qkv, flat.cols - qkv).reshape(shape.tokens(), shape.up_cols());
    return grads;
  }
  if (rounds) {
    const std::int64_t most = shape.tokens() * std::max(shape.up_cols(), shape.qkv_cols());
    const Tensor flat = arena.take(shape.dtype, 1, most);
    const auto view = [&](std::int64_t cols) {
      return flat.slice_cols(0, shape.tokens() * cols).reshape(shape.tokens(), cols);
    };
    rounded.dup = view(shape.up_cols()), rounded.dqkv = view(shape.qkv_cols());
  }
  grads.dmid = splits ? take(shape.model->hidden) : dout;
  const bool in_place = !shape.model->gated() && !shape.joins_gelu() && !splits;
  grads.dup = in_place ? dact : arena.take(shape.dtype, shape.ffn_rows(), shape.up_cols());
  if (shape.has_experts()) grads.dlogits = arena.take(shape.dtype, shape.routed_tokens(), shape.model->experts);
  if (shape.shared_cols() > 0) grads.dshared_up = take(2 * shape.shared_cols());
  if (shape.has_shared_gate()) grads.dshared_logits = take(1);
  grads.dqkv = take(shape.qkv_cols());
  return grads;
}

void take_amaxes(Arena& arena, auto&... all) { ((all = arena.take(DType::f32, 1, tensor::kAmaxCols)), ...); }

ActAmaxes carve_act_amaxes(Arena& arena, const Shape& shape) {
  ActAmaxes amax;
  if (!shape.fp8) return amax;
  take_amaxes(arena, amax.n1, amax.o, amax.act, amax.dout);
  if (shape.joins_inputs()) {
    take_amaxes(arena, amax.din);
  } else {
    take_amaxes(arena, amax.dup, amax.dqkv);
  }
  if (!shape.model->shares_norm()) take_amaxes(arena, amax.n2);
  if (!shape.model->parallel_block) take_amaxes(arena, amax.dmid);
  return amax;
}

Routing carve_routing(Arena& arena, std::int64_t tokens, std::int64_t experts, std::int64_t chosen,
                      std::int64_t with_slots) {
  return {.logits = arena.take(DType::f32, tokens, experts),
          .experts = arena.take(DType::i32, 1, tokens * chosen).reshape(tokens, chosen),
          .slots = arena.take(DType::i32, 1, tokens * chosen).reshape(tokens, chosen),
          .tokens = arena.take(DType::i32, 1, tokens * chosen),
          .weights = arena.take(DType::f32, 1, tokens * chosen),
          .offsets = arena.take(DType::i32, 1, with_slots + 1),
          .all_offsets = {},
          .received_weights = {}};
}

// A number for each query and head of attention.
Tensor take_statistics(Arena& arena, const Shape& shape) {
  const std::int64_t queries = shape.exchanges_heads() ? shape.model->seq : shape.queries();
  return arena.take(DType::f32, shape.batch * shape.attended_heads(), queries);
}

void take_normed_heads(Arena& arena, const Shape& shape, LayerActs& acts) {
  if (!shape.model->qk_norm) return;
  acts.q = arena.take(shape.dtype, shape.tokens(), shape.attn_cols());
  acts.k = arena.take(shape.dtype, shape.tokens(), shape.kv_cols());
}

ContextScratch carve_context(Arena& arena, const Shape& shape) {
  ContextScratch context;
  if (shape.cp == 1) return context;
  const std::int64_t tokens = shape.tokens(), all = tokens * shape.cp;
  const std::int64_t cols = 2 * shape.kv_cols();
  if (shape.passes_keys()) {
    for (Tensor& x : context.blocks) x = arena.take(shape.dtype, tokens, cols);
    for (Tensor* x : {&context.dblocks[0], &context.dblocks[1], &context.dreceived})
      *x = arena.take(DType::f32, tokens, cols);
    if (shape.dtype != DType::f32) context.sums = arena.take(DType::f32, tokens, shape.attn_cols());
    return context;
  }
  if (!shape.exchanges_heads()) {
    context.own = arena.take(shape.dtype, tokens, cols);
    for (Tensor* x : {&context.by_rank, &context.all, &context.dall}) *x = arena.take(shape.dtype, all, cols);
    return context;
  }
  const std::int64_t qkv = shape.qkv_cols() / shape.cp, outputs = 2 * shape.attn_cols() / shape.cp;
  for (Tensor* x : {&context.own, &context.by_rank}) *x = arena.take(shape.dtype, 1, all * std::max(qkv, outputs));
  for (Tensor* x : {&context.all, &context.dall}) *x = arena.take(shape.dtype, all, qkv);
  context.outputs = arena.take(shape.dtype, all, outputs);
  context.offsets = arena.take(DType::i32, shape.cp, shape.cp + 1);
  return context;
}

}  // namespace

RoundedWeights carve_rounded_weights(Arena& arena, const Shape& shape) {
  const std::int64_t hidden = shape.model->hidden;
  const auto take = [&](std::int64_t rows, std::int64_t cols) {
    return Rounded{arena.take(shape.dtype, rows, cols), arena.take(DType::f32, 1, tensor::kAmaxCols)};
  };
  RoundedWeights weights;
  weights.out = take(hidden, shape.attn_cols());
  weights.down = take(hidden, shape.ffn_cols());
  if (shape.joins_inputs()) {
    weights.in = take(shape.qkv_cols() + shape.up_cols(), hidden);
  } else {
    weights.qkv = take(shape.qkv_cols(), hidden);
    weights.up = take(shape.up_cols(), hidden);
  }
  return weights;
}

LayerKinds kinds_of(const ModelConfig& model, std::span<const ChunkPart> parts, std::optional<std::int64_t> place) {
  LayerKinds kinds{.common = false};
  for (const ChunkPart& part : parts) {
    for (std::int64_t i = part.layer_begin; i < part.layer_end; ++i) {
      if (place && i != part.layer_begin + *place) continue;
      (model.experts > 0 && !model.has_experts(i) ? kinds.dense : kinds.common) = true;
    }
  }
  return kinds;
}

namespace {

// Carves what ranks of tp need that gather rows of experts.
void carve_gathered(Arena& arena, const Shape& shape, LayerScratch& scratch) {
  const std::int64_t rows = shape.received_rows(), all = shape.ffn_rows(), hidden = shape.model->hidden;
  scratch.in.received = arena.take(shape.dtype, rows, hidden);
  scratch.out.received = arena.take(shape.dtype, rows, hidden);
  scratch.out.parts = arena.take(shape.dtype, all, hidden);
  scratch.dweights.received = arena.take(DType::f32, 1, rows);
  scratch.dweights.parts = arena.take(DType::f32, 1, all);
}

LayerScratch carve_scratch_of_kind(Arena& arena, const Shape& shape) {
  const std::int64_t tokens = shape.tokens(), rows = shape.shard_tokens(), hidden = shape.model->hidden;
  const DType dtype = shape.dtype;
  const bool parallel = shape.model->parallel_block;
  LayerScratch scratch;
  if (shape.recompute == Recompute::full) {
    // Activations that a policy does not keep have the shapes of kept ones.
    Shape keep_all = shape;
    keep_all.recompute = Recompute::none;
    keep_all.split_backward = keep_all.fp8 = false;
    scratch.acts = carve_acts(arena, keep_all, scratch);
  } else if (shape.recompute == Recompute::selective) {
    scratch.acts.n1 = arena.take(dtype, rows, hidden);
    if (!parallel) scratch.acts.n2 = scratch.acts.n1;  // never needed at once
    if (parallel && !shape.model->shares_norm()) scratch.acts.n2 = arena.take(dtype, rows, hidden);
    scratch.acts.act = arena.take(dtype, shape.ffn_rows(), shape.ffn_cols());
    if (shape.shared_cols() > 0) scratch.acts.shared.act = arena.take(dtype, tokens, shape.shared_cols());
    take_normed_heads(arena, shape, scratch.acts);
  }
  if (shape.sequence_parallel && shape.tp > 1) {
    scratch.gathered = arena.take(dtype, tokens, hidden);
    scratch.reduced = arena.take(dtype, rows, hidden);
    scratch.dout = arena.take(dtype, tokens, hidden);
  }
  scratch.partial = arena.take(dtype, tokens, hidden);
  if (!shape.joins_gelu()) scratch.dact = arena.take(dtype, shape.ffn_rows(), shape.ffn_cols());
  if (shape.has_experts()) {
    scratch.in.held = arena.take(dtype, shape.ffn_rows(), hidden);
    scratch.out.held = arena.take(dtype, shape.ffn_rows(), hidden);
    scratch.dweights.held = arena.take(DType::f32, 1, shape.ffn_rows());
    if (shape.shared_cols() > 0) scratch.dshared_act = arena.take(dtype, tokens, shape.shared_cols());
    if (shape.has_shared_gate()) scratch.dshared_weights = arena.take(DType::f32, 1, tokens);
    scratch.counts = arena.take(DType::f32, shape.counted_ranks() * (shape.balances_sequences ? shape.batch : 1),
                                shape.model->experts);
    if (shape.shares_routing())
      scratch.experts = arena.take(DType::i32, shape.tp, shape.share_tokens() * shape.model->experts_per_token);
    if (shape.exchanges_slots) {
      const std::int64_t own = shape.routed_tokens() * shape.model->experts_per_token;
      scratch.in.own = arena.take(dtype, own, hidden);
      scratch.out.own = arena.take(dtype, own, hidden);
      scratch.dweights.own = arena.take(DType::f32, 1, own);
      if (shape.gathered_shares() > 1) carve_gathered(arena, shape, scratch);
    } else if (shape.ep > 1) {
      for (Tensor* all : {&scratch.routed, &scratch.routed_dout, &scratch.routed_partial})
        *all = arena.take(dtype, shape.routed_tokens(), hidden);
    }
  }
  scratch.dattn = arena.take(dtype, tokens, shape.attn_cols());
  if (!shape.split_backward) scratch.grads = carve_grads(arena, shape, scratch.dact, scratch.dout);
  scratch.delta = take_statistics(arena, shape);
  if (parallel && shape.model->has_out_bias()) scratch.out_biases = arena.take(dtype, 1, hidden);
  return scratch;
}

}  // namespace

LayerScratch carve_scratch(Arena& arena, const Shape& shape, LayerKinds kinds) {
  auto [scratch, dense] = carve_kinds(arena, shape, kinds, carve_scratch_of_kind);
  scratch.context = carve_context(arena, shape);  // not in memory that both kinds share: its offsets stay
  if (!kinds.dense) return scratch;
  dense.context = scratch.context;
  scratch.dense.push_back(std::move(dense));
  return scratch;
}

LayerActs carve_acts(Arena& slot, const Shape& shape, const LayerScratch& scratch) {
  const std::int64_t tokens = shape.tokens(), rows = shape.shard_tokens(), hidden = shape.model->hidden;
  const DType dtype = shape.dtype;
  LayerActs acts = scratch.acts;            // except what is taken below
  acts.x = slot.take(dtype, rows, hidden);  // first, since a slot's input has one place for both kinds of layers
  acts.grads = shape.split_backward ? carve_grads(slot, shape, {}, {}) : scratch.grads;
  acts.amax = carve_act_amaxes(slot, shape);
  if (shape.recompute == Recompute::full) return acts;

  const auto take_norm = [&](Tensor& mean, Tensor& rstd) {
    if (shape.model->has_layer_norm()) mean = slot.take(DType::f32, 1, rows);
    rstd = slot.take(DType::f32, 1, rows);
  };
  const bool keep_cheap = shape.recompute == Recompute::none;
  if (keep_cheap) acts.n1 = slot.take(dtype, rows, hidden);
  if (keep_cheap) acts.act = slot.take(dtype, shape.ffn_rows(), shape.ffn_cols());
  if (shape.has_experts()) {
    acts.routing = carve_routing(slot, shape.routed_tokens(), shape.model->experts, shape.model->experts_per_token,
                                 shape.slot_experts());
    if (shape.exchanges_slots) {
      acts.routing.all_offsets =
          slot.take(DType::i32, std::int64_t{shape.gathered_shares()} * shape.ep, shape.model->experts + 1);
      acts.routing.received_weights = slot.take(DType::f32, 1, shape.ffn_rows());
    }
    if (shape.has_shared_gate()) acts.shared.gate = carve_routing(slot, tokens, 1, 1, 1);
  }
  if (keep_cheap && shape.shared_cols() > 0) acts.shared.act = slot.take(dtype, tokens, shape.shared_cols());
  if (keep_cheap) take_normed_heads(slot, shape, acts);
  if (shape.model->qk_norm) {
    acts.rstd_q = slot.take(DType::f32, 1, tokens * shape.heads());
    acts.rstd_k = slot.take(DType::f32, 1, tokens * shape.kv_heads());
  }
  take_norm(acts.mean1, acts.rstd1);
  acts.o = slot.take(dtype, tokens, shape.attn_cols());
  acts.lse = take_statistics(slot, shape);
  if (shape.model->parallel_block) {
    const FusedInput input = take_fused_input(slot, shape);
    acts.in = input.both, acts.qkv = input.qkv, acts.up = input.up;
    if (shape.model->shares_norm()) return acts;
  } else {
    acts.qkv = slot.take(dtype, tokens, shape.qkv_cols());
    acts.up = slot.take(dtype, shape.ffn_rows(), shape.up_cols());
    if (shape.shared_cols() > 0) acts.shared.up = slot.take(dtype, tokens, 2 * shape.shared_cols());
    acts.mid = slot.take(dtype, rows, hidden);
  }
  if (keep_cheap) acts.n2 = slot.take(dtype, rows, hidden);
  take_norm(acts.mean2, acts.rstd2);
  return acts;
}

}  // namespace ms::nn
