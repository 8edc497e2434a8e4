// One transformer block, tensor and sequence parallel: what it keeps for its backward, its forward and its backward as
// ops issued on streams. Two kinds, by model.parallel_block: attention and then the MLP, each behind its norm
// (serial_block.cpp), or both of the same normed input, summed (parallel_block.cpp).
//
// The gradients of the weights can wait: nothing before them in the model needs them. layer_backward() issues them
// where they hide messages, or leaves them to layer_weight_gradients().
//
// Legend. T tokens of a microbatch, Ts = T / tp under sequence parallelism and T without; H hidden; Q the tp rank's
// (heads + 2 kv_heads) * head_dim; A its heads * head_dim; F its part of the feed-forward width; U = F, or 2F for a
// gated one.
#pragma once

#include "nn/params.h"
#include "nn/tensor_parallel.h"

namespace ms::nn {

// A parameter block and the f32 gradient that its backward adds to. Of a matrix whose products round their factors
// (shape.fp8; absent otherwise): its largest magnitude, found before the first forward that may see it changed.
struct Weight {
  Tensor value, grad, largest = {};
};
struct NormWeights {
  Weight gain, bias;  // no bias in RMSNorm
};
// f32 [1,1] each, where shape.fp8: Weight::largest of a layer's matrices, and the largest magnitude of every other
// factor, found before the first product that it is in.
struct WeightMagnitudes {
  Tensor qkv, out, up, down, in;
};
struct ActMagnitudes {
  Tensor n1, o, n2, act;
  Tensor dout, dmid, dup, dqkv, din;
};
struct LayerWeights {
  NormWeights norm1, norm2;  // no norm2 in a parallel block
  // qkv and gate/up are blocks of touching parameters; in a parallel block `in` is both of them as one.
  Weight qkv, qkv_bias, out, out_bias, up, up_bias, down, down_bias, in, in_bias;
};

// The gradients that those of the weights are made from, beside what the forward kept. Scratch, or, where the backward
// is split, the slot's own. Gathered ones are kept gathered: no message is sent twice.
struct LayerGrads {
  Tensor dout;       // [T,H] of the block's output; unused where nothing is gathered and nothing waits
  Tensor dmid;       // [T,H] of `mid`; of a serial block
  Tensor dup, dqkv;  // [T,U], [T,Q]
  Tensor din;        // [T,Q+U], dqkv and dup side by side; of a parallel block
};

// What a layer keeps between forward and backward. Which tensors are its own and which are scratch shared by all layers
// is the recompute policy's decision.
struct LayerActs {
  Tensor x;                 // [Ts,H] the layer's input
  Tensor n1, mean1, rstd1;  // [Ts,H], [1,Ts]
  Tensor qkv, o, lse;       // [T,Q], [T,A], [batch*heads, seq]
  Tensor up, act;           // [T,U], [T,F]
  // Of a serial block.
  Tensor mid;  // [Ts,H] after attention
  Tensor n2, mean2, rstd2;
  // Of a parallel block.
  Tensor in;  // [T,Q+U], qkv and up side by side

  LayerGrads grads;
  ActMagnitudes largest;  // always the layer's own
};

// Temporary tensors of the compute stream, shared by the layers and the head of a rank.
struct LayerScratch {
  LayerActs acts;     // those that the policy does not keep
  LayerGrads grads;   // where the backward is not split
  Tensor gathered;    // [T,H] all-gathered input of a column-parallel product (sequence parallel only)
  Tensor partial;     // [T,H] output of a row-parallel product before the sum over tp
  Tensor reduced;     // [Ts,H] that sum (sequence parallel only)
  Tensor dout;        // [T,H] all-gathered gradient (sequence parallel only)
  Tensor dact;        // [T,F]; unused where the product goes on to the gradient of `up`
  Tensor dattn;       // [T,A]
  Tensor delta;       // [batch*heads, seq]
  Tensor out_biases;  // [1,H] sum of the two that a parallel block adds
};

// All carve from arenas, real or measuring.
WeightMagnitudes carve_weight_magnitudes(Arena& arena, const Shape& shape);  // where shape.fp8
LayerScratch carve_scratch(Arena& arena, const Shape& shape);
LayerActs carve_acts(Arena& slot, const Shape& shape, const LayerScratch& scratch);

// Where there are addends, x is made of them first.
void norm_forward(tensor::Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& x,
                  const Tensor& y, const Tensor& mean, const Tensor& rstd, const Addends& addends = {});
void norm_backward(tensor::Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& dx,
                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd, bool accumulate);

// A layer of a microbatch. `rotary` is the table of tensor::RotaryTable (llama).
struct Layer {
  const TensorParallel& on;
  const LayerWeights& weights;
  const LayerActs& acts;
  const Tensor& rotary;
  const LayerScratch& scratch;
};

// Issues what finds Weight::largest of all that have one.
void find_weight_magnitudes(tensor::Stream& stream, const LayerWeights& weights);
// acts.x -> what the layer's output is the sum of, in scratch and in acts: the next norm adds it up, or who calls.
// Likewise acts.x is made of the addends first, where there are some.
Addends layer_forward(const Layer& layer, const Addends& addends);
// When the gradients of the weights of the products are made; those of the norms are always made at once.
enum class WeightGradients : std::uint8_t { now, later };
// dx[Ts,H]: the gradient of out on entry, of acts.x on return. `later` only where shape.split_backward.
void layer_backward(const Layer& layer, const Tensor& dx, WeightGradients when);
// What `later` has left. What the recompute policy did not keep is computed once more.
void layer_weight_gradients(const Layer& layer);

}  // namespace ms::nn
