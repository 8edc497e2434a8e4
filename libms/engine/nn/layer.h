// One transformer block, tensor and sequence parallel: its activations, and its forward and backward as ops issued on
// streams. model.parallel_block selects one of two kinds: attention and then the MLP, each after its norm
// (serial_block.cpp), or both on the same input, summed (parallel_block.cpp).
//
// The gradients of the weights can wait: nothing earlier in the model needs them. layer_backward() issues them where
// they overlap communication, or leaves them to layer_weight_gradients().
//
// Legend. T tokens of a microbatch, Ts = T / tp under sequence parallelism and T without; H hidden; Q the tp rank's
// (heads + 2 kv_heads) * head_dim; A its heads * head_dim; K its kv_heads * head_dim; F its shard of the feed-forward
// width; U = F, or 2F for a gated one; R the rows of the rank's experts, shape.ffn_rows(); n the ranks of tp that
// gather rows of their experts, shape.gathered_shares().
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "nn/params.h"
#include "nn/tensor_parallel.h"

namespace ms::nn {

// An operand as tensor::RoundToFp8 leaves it: the numbers, like the operand, and the amax.
struct Rounded {
  Tensor value, amax;
};
// A parameter block and the gradient, in f32 or bf16, that its backward adds to or sets. A matrix whose matmuls round
// their operands (shape.fp8; absent otherwise) is rounded before the first forward that may see a changed value.
struct Weight {
  Tensor value, grad;
  Rounded rounded = {};
};
struct NormWeights {
  Weight gain, bias;  // no bias in RMSNorm
};
// Weight::rounded of a layer's matrices, if shape.fp8: qkv and up, or `in`.
struct RoundedWeights {
  Rounded qkv, out, up, down, in;
};
// f32 each, if shape.fp8: the amax of every other operand, computed before the first matmul that reads it, by the op
// that makes the operand or by one of its own (TensorParallel::fused_amax()).
struct ActAmaxes {
  Tensor n1, o, n2, act;
  Tensor dout, dmid, dup, dqkv, din;
};
// The tensors of a layer's router that are not parameters, in f32; each absent where it has no use.
struct RouterBuffers {
  Tensor bias;    // [1,E], of the scores that choose experts (model.router_bias)
  Tensor chosen;  // [1,E]: += the tokens of each expert, by the backward
  // [1,E+1]: likewise, and those for which there was room where some are dropped; where loads are reported.
  Tensor load;
};
struct LayerWeights {
  NormWeights norm1, norm2;    // no norm2 in a parallel block, except of neox
  NormWeights q_norm, k_norm;  // of a head, if model.qk_norm
  // qkv and gate/up are blocks of adjacent parameters; in a parallel block with one norm, `in` is both as one.
  Weight qkv, qkv_bias, out, out_bias, up, up_bias, down, down_bias, in, in_bias;
  Weight router;  // [E,H], if model.experts; up and down then are those of all experts, one below the other
  Weight shared_up, shared_down, shared_router;  // of the experts that every token passes; [1,H] where they are gated
  RouterBuffers buffers;
};

// The gradients from which those of the weights are computed, beside what the forward kept. They are scratch, or the
// slot's own if the backward is split. Gathered ones are kept gathered: nothing is gathered twice.
struct LayerGrads {
  Tensor dout;                        // [T,H] of the block's output; unused unless gathered or kept for later
  Tensor dmid;                        // [T,H] of `mid`; serial block
  Tensor dup, dqkv;                   // [T,U], [T,Q]
  Tensor din;                         // [T,Q+U], dqkv and dup side by side; parallel block
  Tensor dlogits;                     // [T,E] of a router
  Tensor dshared_up, dshared_logits;  // like SharedExperts::up, and [T,1]
  // Each of them rounded (tensor::RoundToFp8) for the matmuls of both gradients that read it: if shape.fp8 and these
  // are whole and follow each other, which those of a split backward or over tp do not. dmid shares memory with dout,
  // and dqkv with dup.
  struct {
    Tensor dout, dmid, dup, dqkv, din;
  } rounded;
};

// The choice of a router of E experts, k for each token (tensor::Route).
struct Routing {
  Tensor logits, experts, slots;    // [T,E], [T,k], [T,k]
  Tensor tokens, weights, offsets;  // [1,T k], [1,T k], [1,E+1]
  // Where ranks of ep exchange slots: the offsets [n ep,E+1] of all, and the weights [1,R] of the rows of the experts.
  Tensor all_offsets, received_weights;
};

// The experts that every token passes, an MLP of width S: [T,2S], [T,S]. Their factors are the weights of a router with
// one expert, whose slots are the tokens.
struct SharedExperts {
  Tensor up, act;
  Routing gate;
};

// The activations that a layer keeps between forward and backward. The recompute policy decides which tensors are the
// layer's own and which are scratch shared by all layers.
struct LayerActs {
  Tensor x;                 // [Ts,H] the layer's input
  Tensor n1, mean1, rstd1;  // [Ts,H], [1,Ts]
  Tensor qkv, o, lse;       // [T,Q], [T,A], [batch*heads, seq] of the heads and queries of a rank's attention
  // Normed queries and keys, which are rotated in place of those in qkv; if model.qk_norm.
  Tensor q, k, rstd_q, rstd_k;  // [T,A], [T,kv_heads*head_dim], [1,T*heads], [1,T*kv_heads]
  Tensor up, act;               // [T,U], [T,F]; with experts R rows, the slots of tensor/expert_ops.h
  Routing routing;              // if model.experts
  SharedExperts shared;         // if model.shared_experts
  // Serial block, and that of neox.
  Tensor n2, mean2, rstd2;
  // Serial block.
  Tensor mid;  // [Ts,H] after attention
  // Parallel block.
  Tensor in;  // [T,Q+U], qkv and up side by side

  LayerGrads grads;
  ActAmaxes amax;  // always the layer's own
};

// Temporary tensors of attention over ranks of cp. S = cp T tokens of whole sequences, in their order; "by rank" are
// the rows of each rank of cp, one rank's below another's.
struct ContextScratch {
  // Keys and values gathered: own ones, or sums of their gradients [T,2K]; all by rank, those of all in order, and
  // their gradients [S,2K]. Heads exchanged: elements that are sent, and that are received, by rank; [S,Q/cp] and
  // [S,2A/cp] in order, and the gradients of the former.
  Tensor own, by_rank, all, dall, outputs;
  Tensor offsets;  // i32 [cp,cp+1] of an exchange: exchange_offsets()
  // Keys and values passed around: those of the rank that is attended to, and of the next one [T,2K]; in f32, sums of
  // the gradients of the former and of the one before, and those that arrive [T,2K]; in f32, if the layer is in bf16,
  // the outputs of the ranks so far, or the gradients of queries [T,A].
  std::array<Tensor, 2> blocks, dblocks;
  Tensor dreceived, sums;
};

// Temporary tensors of the compute stream, shared by the layers and the head of a rank.
struct LayerScratch {
  LayerActs acts;    // activations that the policy does not keep
  LayerGrads grads;  // if the backward is not split
  Tensor gathered;   // [T,H] all-gathered input of a column-parallel matmul (sequence parallel only)
  Tensor partial;    // [T,H] output of a row-parallel matmul before the reduction over tp
  Tensor reduced;    // [Ts,H] after the reduction (sequence parallel only)
  Tensor dout;       // [T,H] all-gathered gradient (sequence parallel only)
  Tensor dact;       // [T,F]; unused if the matmul is fused with the GELU's gradient
  // Rows by slot that go into experts and that come out, or their gradients: `held` [R,H], and the other places where
  // ranks of ep exchange slots; the gradients of their weights, likewise [1,R].
  SlotRows in, out, dweights;
  Tensor counts;   // [parts,E], parts of the tokens that are balanced
  Tensor experts;  // [tp,T k/tp], Routing::experts of all ranks of tp; if they share the routing
  // [shape.routed_tokens(),H], if tokens of other ranks of ep are among them: n2 and the gradient of the layer's
  // output, gathered over ep, and what is reduced over it.
  Tensor routed, routed_dout, routed_partial;
  Tensor dshared_act, dshared_weights;  // like SharedExperts::act and its gate's weights
  Tensor dattn;                         // [T,A]
  Tensor delta;                         // like LayerActs::lse
  ContextScratch context;               // if mesh.cp
  Tensor out_biases;                    // [1,H] sum of a parallel block's two output biases
  // That of dense layers among those with experts, in the same memory; empty if there are none.
  std::vector<LayerScratch> dense = {};
};

// The kinds of layers that use some memory: one with experts, or the only kind of a model, and dense ones among those.
struct LayerKinds {
  bool common = true, dense = false;
};
// Returns those of the layers in some chunks; `place`: only of the chunks' layers at that place.
LayerKinds kinds_of(const ModelConfig& model, std::span<const ChunkPart> parts, std::optional<std::int64_t> place = {});

// All carve from arenas, real or measuring.
RoundedWeights carve_rounded_weights(Arena& arena, const Shape& shape);  // if shape.fp8
LayerScratch carve_scratch(Arena& arena, const Shape& shape, LayerKinds kinds);
// Returns what ContextScratch::offsets must hold before the first layer runs: a rank has as many rows for each other
// one.
std::vector<std::int32_t> exchange_offsets(const Shape& shape);
LayerActs carve_acts(Arena& slot, const Shape& shape, const LayerScratch& scratch);
// Returns what `carve` carves for the common kind of layers, with experts if the model has some, and for dense ones
// among them, in the same memory.
template <class F>
auto carve_kinds(Arena& arena, const Shape& shape, LayerKinds kinds, F&& carve) {
  Shape dense = shape;
  dense.dense = true;
  if (!kinds.dense) return std::pair(carve(arena, shape), decltype(carve(arena, shape)){});
  if (!kinds.common) {
    auto only = carve(arena, dense);
    return std::pair(only, only);
  }
  Arena common_bytes = Arena::measuring(), dense_bytes = Arena::measuring();
  carve(common_bytes, shape), carve(dense_bytes, dense);
  Arena memory = arena.take_arena(std::max(common_bytes.used_bytes(), dense_bytes.used_bytes())), same = memory;
  auto common = carve(memory, shape);
  return std::pair(common, carve(same, dense));
}

// Computes y = norm(x). If `residual` is not empty, x first becomes its sum. `amax` receives that of y, or of dx, if it
// is present.
void norm_forward(tensor::Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& x,
                  const Tensor& y, const Tensor& mean, const Tensor& rstd, const Residual& residual = {},
                  const Tensor& amax = {});
void norm_backward(tensor::Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& dx,
                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd, bool accumulate,
                   const Tensor& amax = {});

// The positions that attention knows.
struct Positions {
  Tensor rotary;  // the rows of shape.queries() positions of the table of tensor::RotaryTable (llama)
  Tensor starts;  // i32 [1,S], AttentionFwd::starts; absent if a sequence is one document
  Tensor cache;   // [seq, 2 kv_heads*head_dim] of one sequence, keys and values of every position; absent unless kept
};

// A layer of a microbatch.
struct Layer {
  const TensorParallel& on;
  const LayerWeights& weights;
  const LayerActs& acts;
  Positions positions;
  const LayerScratch& scratch;
};

// Rounds all weights whose matmuls round them.
void round_weights(tensor::Stream& stream, const LayerWeights& weights);
// Issues acts.x -> the residual terms of the layer's output, unsummed, in scratch and in acts: the next norm or the
// caller adds them up. If `residual` is not empty, acts.x first becomes its sum.
Residual layer_forward(const Layer& layer, const Residual& residual);
// When the gradients of the matmuls' weights are computed; those of the norms are always computed at once.
enum class WeightGradients : std::uint8_t { now, later };
// Whether acts.amax.dout is that of dx on entry already, and where the amax of dx on return goes, if it is to be found.
struct GradientAmaxes {
  bool has_dout = false;
  Tensor dx = {};
};
// dx[Ts,H] is the gradient of the output on entry and of acts.x on return. `later` only if shape.split_backward.
// `loss_scale` is that of Chunk::backward(), for the losses of a router.
void layer_backward(const Layer& layer, const Tensor& dx, WeightGradients when, const GradientAmaxes& amaxes,
                    double loss_scale);
// Issues the gradients that `later` has left. Recomputes what the recompute policy did not keep.
void layer_weight_gradients(const Layer& layer);

}  // namespace ms::nn
