// out = x + attention(n) + mlp(n), n = norm1(x). Of messages over tp, one gather and one reduction forward, and in the
// backward the same and a gather of n: both branches read what was gathered once, and the products that end them add
// into one partial sum.
//
// model.fused: one product [T,H] [H,Q+U] makes the inputs of both branches, one the gradient of n, and one the gradient
// of their weights; otherwise each branch has its own.
#include "nn/block.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

// acts.x -> acts.in.
void input_products(const Layer& layer) {
  const auto& [on, weights, acts, rotary, scratch] = layer;
  if (on.shape.model->fused) {
    on.gather_product(forward_product(acts.in, {{}, acts.largest.n1}, weights.in, weights.in_bias), acts.n1,
                      scratch.gathered);
    return;
  }
  const Tensor n = on.gather_product(forward_product(acts.qkv, {{}, acts.largest.n1}, weights.qkv, weights.qkv_bias),
                                     acts.n1, scratch.gathered);
  Matmul of_up = forward_product(acts.up, {n, acts.largest.n1}, weights.up, weights.up_bias);
  of_up.factors = on.factors(false);
  on.compute.submit(of_up);
}

// The gradient of n from grads.din.
Arriving input_gradient(const Layer& layer) {
  const auto& [on, weights, acts, rotary, scratch] = layer;
  const LayerGrads& grads = acts.grads;
  if (on.shape.model->fused) {
    return on.product_reduce(gradient_product(scratch.partial, {grads.din, acts.largest.din}, weights.in),
                             scratch.reduced);
  }
  on.product(gradient_product(scratch.partial, {grads.dup, acts.largest.dup}, weights.up));
  Matmul of_qkv = gradient_product(scratch.partial, {grads.dqkv, acts.largest.dqkv}, weights.qkv);
  of_qkv.accumulate = true;
  return on.product_reduce(of_qkv, scratch.reduced);
}

void normed(const Layer& layer, const Addends& addends) {
  const LayerActs& acts = layer.acts;
  norm_forward(layer.on.compute, *layer.on.shape.model, layer.weights.norm1, acts.x, acts.n1, acts.mean1, acts.rstd1,
               addends);
}

// acts.x, of addends where there are some -> acts.o and acts.act: up to the products that end the branches.
void branches(const Layer& layer, const Addends& addends) {
  normed(layer, addends);
  input_products(layer);
  attention_forward(layer);
  activation_forward(layer);
}

// What the policy did not keep; the layer's output is not needed.
void recompute(const Layer& layer) {
  const Recompute policy = layer.on.shape.recompute;
  if (policy == Recompute::full) {
    branches(layer, {});
  } else if (policy == Recompute::selective) {
    normed(layer, {});
    activation_forward(layer);
  }
}

// The gather of n may be under way still.
void weight_gradients(const Layer& layer, const Tensor& dout, const Arriving& gathered) {
  const auto& [on, weights, acts, rotary, scratch] = layer;
  bias_gradient(layer, weights.down_bias, own_rows(layer, dout));
  bias_gradient(layer, weights.out_bias, own_rows(layer, dout));
  const ActMagnitudes& largest = acts.largest;
  weight_gradient(layer, weights.down, {dout, largest.dout}, {acts.act, largest.act});
  weight_gradient(layer, weights.out, {dout, largest.dout}, {acts.o, largest.o});
  const Factor n{on.arrived(gathered), largest.n1};
  if (on.shape.model->fused) {
    weight_gradient(layer, weights.in, {acts.grads.din, largest.din}, n);
  } else {
    weight_gradient(layer, weights.qkv, {acts.grads.dqkv, largest.dqkv}, n);
    weight_gradient(layer, weights.up, {acts.grads.dup, largest.dup}, n);
  }
  bias_gradient(layer, weights.in_bias, acts.grads.din);
}

}  // namespace

Addends parallel_forward(const Layer& layer, const Addends& addends) {
  const auto& [on, weights, acts, rotary, scratch] = layer;
  branches(layer, addends);
  on.product(forward_product(scratch.partial, {acts.o, acts.largest.o}, weights.out));
  Matmul of_mlp = forward_product(scratch.partial, {acts.act, acts.largest.act}, weights.down);
  of_mlp.accumulate = true;
  const Arriving sum = on.product_reduce(of_mlp, scratch.reduced);
  if (scratch.out_biases) {
    on.compute.submit(Add{scratch.out_biases, weights.out_bias.value, weights.down_bias.value, {}});
  }
  return {acts.x, on.arrived(sum), scratch.out_biases};
}

void parallel_backward(const Layer& layer, const Tensor& dx, WeightGradients when) {
  const auto& [on, weights, acts, rotary, scratch] = layer;
  const bool now = when == WeightGradients::now;
  recompute(layer);
  // n is gathered once more under all that makes its gradient, which is reduced under the gradients of the weights.
  const Tensor dout = activation_backward(layer, dx, acts.grads.dout);
  const Arriving n = now ? on.gather(acts.n1, scratch.gathered) : Arriving{};
  Matmul of_attention = gradient_product(scratch.dattn, {dout, acts.largest.dout}, weights.out);
  of_attention.factors = on.factors(true);
  on.compute.submit(of_attention);
  attention_backward(layer);
  const Arriving dn = input_gradient(layer);
  if (now) {
    weight_gradients(layer, dout, n);
  } else {
    keep_gradient(layer, acts.grads.dout, dout);
  }
  norm_backward(on.compute, *on.shape.model, weights.norm1, dx, on.arrived(dn), acts.x, acts.mean1, acts.rstd1, true);
}

void parallel_weight_gradients(const Layer& layer) {
  recompute(layer);
  weight_gradients(layer, layer.acts.grads.dout, layer.on.gather(layer.acts.n1, layer.scratch.gathered));
}

}  // namespace ms::nn
