// One transformer block, tensor and sequence parallel: what it keeps for its backward, its forward and its backward as
// ops issued on streams.
//
// Legend. T tokens of a microbatch, Ts = T / tp under sequence parallelism and T without; H hidden; Q the tp rank's
// (heads + 2 kv_heads) * head_dim; A its heads * head_dim; F its part of the feed-forward width (2F for a gated one).
#pragma once

#include "nn/params.h"
#include "nn/tensor_parallel.h"

namespace ms::nn {

// A parameter block and the f32 gradient that its backward adds to.
struct Weight {
  Tensor value, grad;
};
struct NormWeights {
  Weight gain, bias;  // no bias in RMSNorm
};
struct LayerWeights {
  NormWeights norm1, norm2;
  Weight qkv, qkv_bias, out, out_bias, up, up_bias, down,
      down_bias;  // qkv and gate/up are blocks of touching parameters
};

// What a layer keeps between forward and backward. Which tensors are its own and which are scratch shared by all layers
// is the recompute policy's decision.
struct LayerActs {
  Tensor x;                 // [Ts,H] the layer's input
  Tensor n1, mean1, rstd1;  // [Ts,H], [1,Ts]
  Tensor qkv, o, lse;       // [T,Q], [T,A], [batch*heads, seq]
  Tensor mid;               // [Ts,H] after attention
  Tensor n2, mean2, rstd2;
  Tensor up, act;  // [T,up], [T,F]
};

// Temporary tensors of the compute stream, shared by the layers and the head of a rank.
struct LayerScratch {
  LayerActs acts;      // those that the policy does not keep
  Tensor gathered;     // [T,H] all-gathered input of a column-parallel product (sequence parallel only)
  Tensor partial;      // [T,H] output of a row-parallel product before the sum over tp
  Tensor reduced;      // [Ts,H] that sum (sequence parallel only)
  Tensor dout;         // [T,H] all-gathered gradient (sequence parallel only)
  Tensor dact;         // [T,F]
  Tensor dup;          // [T,up]
  Tensor dattn, dqkv;  // [T,A], [T,Q]
  Tensor delta;        // [batch*heads, seq]
};

// Both carve from arenas, real or measuring.
LayerScratch carve_scratch(Arena& arena, const Shape& shape);
LayerActs carve_acts(Arena& slot, const Shape& shape, const LayerScratch& scratch);

void norm_forward(tensor::Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& x,
                  const Tensor& y, const Tensor& mean, const Tensor& rstd);
void norm_backward(tensor::Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& dx,
                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd, bool accumulate);

// acts.x -> out[Ts,H]. `rotary` is the table of tensor::RotaryTable (llama).
void layer_forward(const TensorParallel& on, const LayerWeights& weights, const LayerActs& acts, const Tensor& rotary,
                   LayerScratch& scratch, const Tensor& out);
// dx[Ts,H]: the gradient of out on entry, of acts.x on return.
void layer_backward(const TensorParallel& on, const LayerWeights& weights, const LayerActs& acts, const Tensor& rotary,
                    LayerScratch& scratch, const Tensor& dx);

}  // namespace ms::nn
