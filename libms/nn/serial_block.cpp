// mid = x + attention(norm1(x)); out = mid + mlp(norm2(mid)). Of messages over tp, a gather and a reduction for each
// half, forward and backward.
#include "nn/block.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

void norm1(const Layer& layer, const Addends& addends) {
  const LayerActs& acts = layer.acts;
  norm_forward(layer.on.compute, *layer.on.shape.model, layer.weights.norm1, acts.x, acts.n1, acts.mean1, acts.rstd1,
               addends);
}
void norm2(const Layer& layer, const Addends& addends) {
  const LayerActs& acts = layer.acts;
  norm_forward(layer.on.compute, *layer.on.shape.model, layer.weights.norm2, acts.mid, acts.n2, acts.mean2, acts.rstd2,
               addends);
}

// acts.x, of addends where there are some -> what acts.mid is the sum of.
Addends attention_half(const Layer& layer, const Addends& addends) {
  const auto& [on, weights, acts, rotary, scratch] = layer;
  norm1(layer, addends);
  on.gather_product(forward_product(acts.qkv, {{}, acts.largest.n1}, weights.qkv, weights.qkv_bias), acts.n1,
                    scratch.gathered);
  attention_forward(layer);
  const Tensor reduced = on.arrived(
      on.product_reduce(forward_product(scratch.partial, {acts.o, acts.largest.o}, weights.out), scratch.reduced));
  return {acts.x, reduced, weights.out_bias.value};
}

// acts.mid, of its addends -> acts.act: the MLP up to its second product.
void mlp_half(const Layer& layer, const Addends& addends) {
  const auto& [on, weights, acts, rotary, scratch] = layer;
  norm2(layer, addends);
  Matmul product = forward_product(acts.up, {{}, acts.largest.n2}, weights.up, weights.up_bias);
  // Where the activation alone is computed once more, it has to come to the same bits.
  const bool makes_gelu = on.shape.joins_gelu() && on.shape.recompute != Recompute::selective;
  if (makes_gelu) product.gelu_y = acts.act;
  on.gather_product(product, acts.n2, scratch.gathered);
  if (!makes_gelu) activation_forward(layer);
}

// What the policy did not keep and the MLP's backward needs; the layer's output it does not. What attention needs
// besides comes with it under `full`, and is recompute_norm1()'s under `selective`, where n1 and n2 share their memory.
void recompute_mlp(const Layer& layer) {
  const Recompute policy = layer.on.shape.recompute;
  if (policy == Recompute::full) {
    mlp_half(layer, attention_half(layer, {}));
  } else if (policy == Recompute::selective) {
    norm2(layer, {});
    activation_forward(layer);
  }
}
void recompute_norm1(const Layer& layer) {
  if (layer.on.shape.recompute == Recompute::selective) norm1(layer, {});
}

// The input's gather, n1 or n2, may be under way still.
void mlp_weight_gradients(const Layer& layer, const Tensor& dout, const Arriving& n2) {
  const LayerActs& acts = layer.acts;
  bias_gradient(layer, layer.weights.down_bias, own_rows(layer, dout));
  weight_gradient(layer, layer.weights.down, {dout, acts.largest.dout}, {acts.act, acts.largest.act});
  weight_gradient(layer, layer.weights.up, {acts.grads.dup, acts.largest.dup}, {layer.on.arrived(n2), acts.largest.n2});
  bias_gradient(layer, layer.weights.up_bias, acts.grads.dup);
}
void attention_weight_gradients(const Layer& layer, const Tensor& dmid, const Arriving& n1) {
  const LayerActs& acts = layer.acts;
  bias_gradient(layer, layer.weights.out_bias, own_rows(layer, dmid));
  weight_gradient(layer, layer.weights.out, {dmid, acts.largest.dmid}, {acts.o, acts.largest.o});
  weight_gradient(layer, layer.weights.qkv, {acts.grads.dqkv, acts.largest.dqkv},
                  {layer.on.arrived(n1), acts.largest.n1});
  bias_gradient(layer, layer.weights.qkv_bias, acts.grads.dqkv);
}

}  // namespace

Addends serial_forward(const Layer& layer, const Addends& addends) {
  const auto& [on, weights, acts, rotary, scratch] = layer;
  mlp_half(layer, attention_half(layer, addends));
  const Tensor reduced = on.arrived(
      on.product_reduce(forward_product(scratch.partial, {acts.act, acts.largest.act}, weights.down), scratch.reduced));
  return {acts.mid, reduced, weights.down_bias.value};
}

// The input of a product is gathered once more under the product that makes its gradient, and that gradient is reduced
// under the gradients of the weights.
void serial_backward(const Layer& layer, const Tensor& dx, WeightGradients when) {
  const auto& [on, weights, acts, rotary, scratch] = layer;
  const LayerGrads& grads = acts.grads;
  const ModelConfig& model = *on.shape.model;
  const bool now = when == WeightGradients::now;
  recompute_mlp(layer);

  const Tensor dout = activation_backward(layer, dx, grads.dout);
  const Arriving n2 = now ? on.gather(acts.n2, scratch.gathered) : Arriving{};
  const Arriving dn2 =
      on.product_reduce(gradient_product(scratch.partial, {grads.dup, acts.largest.dup}, weights.up), scratch.reduced);
  if (now) {
    mlp_weight_gradients(layer, dout, n2);
  } else {
    keep_gradient(layer, grads.dout, dout);
  }
  norm_backward(on.compute, model, weights.norm2, dx, on.arrived(dn2), acts.mid, acts.mean2, acts.rstd2, true);

  recompute_norm1(layer);
  const Tensor dmid =
      on.gather_product(gradient_product(scratch.dattn, {{}, acts.largest.dmid}, weights.out), dx, grads.dmid);
  attention_backward(layer);
  const Arriving n1 = now ? on.gather(acts.n1, scratch.gathered) : Arriving{};
  const Arriving dn1 = on.product_reduce(
      gradient_product(scratch.partial, {grads.dqkv, acts.largest.dqkv}, weights.qkv), scratch.reduced);
  if (now) {
    attention_weight_gradients(layer, dmid, n1);
  } else {
    keep_gradient(layer, grads.dmid, dmid);
  }
  norm_backward(on.compute, model, weights.norm1, dx, on.arrived(dn1), acts.x, acts.mean1, acts.rstd1, true);
}

void serial_weight_gradients(const Layer& layer) {
  const TensorParallel& on = layer.on;
  recompute_mlp(layer);
  mlp_weight_gradients(layer, layer.acts.grads.dout, on.gather(layer.acts.n2, layer.scratch.gathered));
  recompute_norm1(layer);
  attention_weight_gradients(layer, layer.acts.grads.dmid, on.gather(layer.acts.n1, layer.scratch.gathered));
}

}  // namespace ms::nn
