// mid = x + attention(norm1(x)); out = mid + mlp(norm2(mid)). Over tp there is a gather and a reduction for each half,
// forward and backward.
#include "nn/block.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

void norm1(const Layer& layer, const Residual& residual) {
  const LayerActs& acts = layer.acts;
  norm_forward(layer.on.compute, *layer.on.shape.model, layer.weights.norm1, acts.x, acts.n1, acts.mean1, acts.rstd1,
               residual, layer.on.fused_amax_of_gathered(acts.amax.n1));
}
void norm2(const Layer& layer, const Residual& residual) {
  const LayerActs& acts = layer.acts;
  norm_forward(layer.on.compute, *layer.on.shape.model, layer.weights.norm2, acts.mid, acts.n2, acts.mean2, acts.rstd2,
               residual, layer.on.fused_amax_of_gathered(acts.amax.n2));
}

// Tells whether the first matmul of the MLP makes its second one's operand.
bool makes_gelu(const Layer& layer) {
  const Shape& shape = layer.on.shape;
  return shape.joins_gelu() && shape.recompute != Recompute::selective;  // recomputed, it must have the same bits
}

// acts.x, summed from `residual` unless that is empty -> the residual terms of acts.mid.
Residual attention_half(const Layer& layer, const Residual& residual) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  norm1(layer, residual);
  on.gather_matmul(forward_matmul(acts.qkv, {{}, acts.amax.n1}, weights.qkv, weights.qkv_bias), acts.n1,
                   scratch.gathered, static_cast<bool>(on.fused_amax_of_gathered(acts.amax.n1)));
  attention_forward(layer);
  const Tensor reduced = on.arrived(
      on.matmul_reduce(forward_matmul(scratch.partial, {acts.o, acts.amax.o}, weights.out), scratch.reduced));
  return {acts.x, reduced, weights.out_bias.value};
}

// acts.mid, summed from `residual` unless that is empty -> acts.act: the MLP up to its second matmul.
void mlp_half(const Layer& layer, const Residual& residual) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  norm2(layer, residual);
  if (on.shape.has_experts()) return experts_in(layer);
  Matmul matmul = forward_matmul(acts.up, {{}, acts.amax.n2}, weights.up, weights.up_bias);
  if (makes_gelu(layer)) matmul.gelu_y = acts.act;
  on.gather_matmul(matmul, acts.n2, scratch.gathered, static_cast<bool>(on.fused_amax_of_gathered(acts.amax.n2)));
  if (!makes_gelu(layer)) activation_forward(layer);
}

// Recomputes what the policy did not keep and the MLP's backward needs, which excludes the layer's output. Under `full`
// that includes what attention needs; under `selective` recompute_norm1() does that, as n1 and n2 share memory.
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

Operand middle_gradient(const Layer& layer, const Tensor& dmid) {
  const Tensor& rounded = layer.acts.grads.rounded.dmid;
  return {dmid, layer.acts.amax.dmid, rounded, sums_of_rounding(layer, rounded, layer.weights.out_bias)};
}

// The input's gather, n1 or n2, may still be in flight.
void mlp_weight_gradients(const Layer& layer, const Tensor& dout, const Arriving& n2) {
  const LayerActs& acts = layer.acts;
  const Tensor& rounded = acts.grads.rounded.dout;
  weight_gradient(layer, layer.weights.down,
                  {dout, acts.amax.dout, rounded, sums_of_rounding(layer, rounded, layer.weights.down_bias)},
                  {acts.act, acts.amax.act}, layer.weights.down_bias, own_rows(layer, dout));
  weight_gradient(layer, layer.weights.up, up_gradient(layer), {layer.on.arrived(n2), acts.amax.n2},
                  layer.weights.up_bias, acts.grads.dup);
}
void attention_weight_gradients(const Layer& layer, const Tensor& dmid, const Arriving& n1) {
  const LayerActs& acts = layer.acts;
  weight_gradient(layer, layer.weights.out, middle_gradient(layer, dmid), {acts.o, acts.amax.o}, layer.weights.out_bias,
                  own_rows(layer, dmid));
  weight_gradient(layer, layer.weights.qkv, qkv_gradient(layer), {layer.on.arrived(n1), acts.amax.n1},
                  layer.weights.qkv_bias, acts.grads.dqkv);
}

}  // namespace

Residual serial_forward(const Layer& layer, const Residual& residual) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  mlp_half(layer, attention_half(layer, residual));
  if (on.shape.has_experts()) return {acts.mid, experts_out(layer), {}};
  const bool has_amax = !makes_gelu(layer) && activation_amax(layer);
  const Tensor reduced = on.arrived(on.matmul_reduce(
      forward_matmul(scratch.partial, {acts.act, acts.amax.act}, weights.down), scratch.reduced, has_amax));
  return {acts.mid, reduced, weights.down_bias.value};
}

namespace {

// dx, the gradient of the output -> that of acts.n2, and of the MLP's weights unless they are `later`.
Tensor mlp_backward(const Layer& layer, const Tensor& dx, WeightGradients when, const GradientAmaxes& amaxes) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const LayerGrads& grads = acts.grads;
  const bool now = when == WeightGradients::now;
  const Tensor dout = activation_backward(layer, dx, grads.dout, amaxes.has_dout);
  const Arriving n2 = now ? on.gather(acts.n2, scratch.gathered) : Arriving{};
  const Operand dup = up_gradient(layer);
  const Arriving dn2 = on.matmul_reduce(gradient_matmul(scratch.partial, dup, weights.up), scratch.reduced,
                                        static_cast<bool>(activation_gradient_amax(layer)), dup.sums);
  if (now) {
    mlp_weight_gradients(layer, dout, n2);
  } else {
    keep_gradient(layer, grads.dout, dout);
  }
  return on.arrived(dn2);
}

}  // namespace

// Gathers the input of a matmul again while its gradient is computed, and reduces that gradient while those of the
// weights are computed.
void serial_backward(const Layer& layer, const Tensor& dx, WeightGradients when, const GradientAmaxes& amaxes,
                     double loss_scale) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const LayerGrads& grads = acts.grads;
  const ModelConfig& model = *on.shape.model;
  const bool now = when == WeightGradients::now;
  recompute_mlp(layer);

  const Tensor dn2 =
      on.shape.has_experts() ? experts_backward(layer, dx, when, loss_scale) : mlp_backward(layer, dx, when, amaxes);
  const Tensor dmid_amax = on.fused_amax_of_gathered(acts.amax.dmid);
  norm_backward(on.compute, model, weights.norm2, dx, dn2, acts.mid, acts.mean2, acts.rstd2, true, dmid_amax);

  recompute_norm1(layer);
  const Operand middle = middle_gradient(layer, {});
  const Tensor dmid = on.gather_matmul(gradient_matmul(scratch.dattn, middle, weights.out), dx, grads.dmid,
                                       static_cast<bool>(dmid_amax), middle.sums);
  attention_backward(layer);
  const Arriving n1 = now ? on.gather(acts.n1, scratch.gathered) : Arriving{};
  const Operand dqkv = qkv_gradient(layer);
  const Arriving dn1 =
      on.matmul_reduce(gradient_matmul(scratch.partial, dqkv, weights.qkv), scratch.reduced, false, dqkv.sums);
  if (now) {
    attention_weight_gradients(layer, dmid, n1);
  } else {
    keep_gradient(layer, grads.dmid, dmid);
  }
  norm_backward(on.compute, model, weights.norm1, dx, on.arrived(dn1), acts.x, acts.mean1, acts.rstd1, true, amaxes.dx);
}

void serial_weight_gradients(const Layer& layer) {
  const TensorParallel& on = layer.on;
  recompute_mlp(layer);
  if (on.shape.has_experts()) {
    experts_weight_gradients(layer);
  } else {
    mlp_weight_gradients(layer, layer.acts.grads.dout, on.gather(layer.acts.n2, layer.scratch.gathered));
  }
  recompute_norm1(layer);
  attention_weight_gradients(layer, layer.acts.grads.dmid, on.gather(layer.acts.n1, layer.scratch.gathered));
}

}  // namespace ms::nn
