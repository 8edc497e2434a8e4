// out = x + attention(n) + mlp(n), n = norm1(x). Over tp there is one gather and one reduction in the forward, and in
// the backward the same plus a gather of n: both branches read what was gathered once, and the matmuls at their ends
// add into one partial sum.
//
// The MLP of neox reads norm2(x) instead (model.shares_norm()): a gather more in the forward, and in the backward a
// gather and a reduction more.
//
// With model.fused and one norm, one matmul [T,H] [H,Q+U] computes the inputs of both branches, one the gradient of n,
// and one the gradient of their weights; otherwise each branch has its own.
#include "nn/block.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

// acts.x -> acts.in.
void input_matmuls(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  if (on.shape.joins_inputs()) {
    on.gather_matmul(forward_matmul(acts.in, {{}, acts.amax.n1}, weights.in, weights.in_bias), acts.n1,
                     scratch.gathered, static_cast<bool>(on.fused_amax_of_gathered(acts.amax.n1)));
    return;
  }
  const Tensor n =
      on.gather_matmul(forward_matmul(acts.qkv, {{}, acts.amax.n1}, weights.qkv, weights.qkv_bias), acts.n1,
                       scratch.gathered, static_cast<bool>(on.fused_amax_of_gathered(acts.amax.n1)));
  if (!on.shape.model->shares_norm()) {
    on.gather_matmul(forward_matmul(acts.up, {{}, acts.amax.n2}, weights.up, weights.up_bias), acts.n2,
                     scratch.gathered, static_cast<bool>(on.fused_amax_of_gathered(acts.amax.n2)));
    return;
  }
  Matmul up = forward_matmul(acts.up, {n, acts.amax.n1}, weights.up, weights.up_bias);
  up.operands = on.operands(false);
  on.compute.submit(up);
}

Operand input_gradient_operand(const Layer& layer) {
  const Tensor& rounded = layer.acts.grads.rounded.din;
  return {layer.acts.grads.din, layer.acts.amax.din, rounded, sums_of_rounding(layer, rounded, layer.weights.in_bias)};
}

// Issues the gradient of n from grads.din.
Arriving input_gradient(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const LayerGrads& grads = acts.grads;
  if (on.shape.joins_inputs()) {
    const Operand din = input_gradient_operand(layer);
    return on.matmul_reduce(gradient_matmul(scratch.partial, din, weights.in), scratch.reduced, false, din.sums);
  }
  on.local_matmul(gradient_matmul(scratch.partial, {grads.dup, acts.amax.dup, grads.rounded.dup}, weights.up));
  Matmul qkv = gradient_matmul(scratch.partial, {grads.dqkv, acts.amax.dqkv, grads.rounded.dqkv}, weights.qkv);
  qkv.accumulate = true;
  return on.matmul_reduce(qkv, scratch.reduced);
}

void normed(const Layer& layer, const Residual& residual) {
  const LayerActs& acts = layer.acts;
  norm_forward(layer.on.compute, *layer.on.shape.model, layer.weights.norm1, acts.x, acts.n1, acts.mean1, acts.rstd1,
               residual, layer.on.fused_amax_of_gathered(acts.amax.n1));
  if (layer.on.shape.model->shares_norm()) return;
  norm_forward(layer.on.compute, *layer.on.shape.model, layer.weights.norm2, acts.x, acts.n2, acts.mean2, acts.rstd2,
               {}, layer.on.fused_amax_of_gathered(acts.amax.n2));
}

// acts.x, summed from `residual` unless that is empty -> acts.o and acts.act: up to the matmuls that end the branches.
void branches(const Layer& layer, const Residual& residual) {
  normed(layer, residual);
  input_matmuls(layer);
  attention_forward(layer);
  activation_forward(layer);
}

// Recomputes what the policy did not keep; the layer's output is not needed.
void recompute(const Layer& layer) {
  const Recompute policy = layer.on.shape.recompute;
  if (policy == Recompute::full) {
    branches(layer, {});
  } else if (policy == Recompute::selective) {
    normed(layer, {});
    activation_forward(layer);
  }
}

// Issues the gradients of the weights that end the branches.
void output_weight_gradients(const Layer& layer, const Tensor& dout) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const ActAmaxes& amax = acts.amax;
  const auto& rounded = acts.grads.rounded;
  const Tensor own = own_rows(layer, dout);
  weight_gradient(layer, weights.down,
                  {dout, amax.dout, rounded.dout, sums_of_rounding(layer, rounded.dout, weights.down_bias)},
                  {acts.act, amax.act}, weights.down_bias, own);
  // One rounding of dout has one place for its sums, which is the other bias.
  weight_gradient(layer, weights.out, {dout, amax.dout, rounded.dout}, {acts.o, amax.o}, weights.out_bias, own);
}

// Issue those of the weights that begin a branch; the gathers of their inputs may still be in flight.
void up_weight_gradient(const Layer& layer, const Arriving& n2) {
  weight_gradient(layer, layer.weights.up, up_gradient(layer), {layer.on.arrived(n2), layer.acts.amax.n2},
                  layer.weights.up_bias, layer.acts.grads.dup);
}
void qkv_weight_gradient(const Layer& layer, const Arriving& n1) {
  weight_gradient(layer, layer.weights.qkv, qkv_gradient(layer), {layer.on.arrived(n1), layer.acts.amax.n1},
                  layer.weights.qkv_bias, layer.acts.grads.dqkv);
}

// The gather of n may still be in flight.
void weight_gradients(const Layer& layer, const Tensor& dout, const Arriving& gathered) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const ActAmaxes& amax = acts.amax;
  const auto& rounded = acts.grads.rounded;
  output_weight_gradients(layer, dout);
  const Operand n{on.arrived(gathered), amax.n1};
  if (on.shape.model->fused) {
    weight_gradient(layer, weights.in, input_gradient_operand(layer), n, weights.in_bias, acts.grads.din);
  } else {
    const auto& [dup, dqkv] = std::pair(acts.grads.dup, acts.grads.dqkv);
    weight_gradient(layer, weights.qkv, {dqkv, amax.dqkv, rounded.dqkv}, n, weights.qkv_bias, dqkv);
    weight_gradient(layer, weights.up, {dup, amax.dup, rounded.dup}, n, weights.up_bias, dup);
  }
}

// Issues the gradients of n2 and n1, and adds those of x to dx, where each branch has a norm. What reads dout comes
// before dx changes.
void norms_backward(const Layer& layer, const Tensor& dx, const Tensor& dout, bool now, const Tensor& dx_amax) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const ModelConfig& model = *on.shape.model;
  const Arriving n2 = now ? on.gather(acts.n2, scratch.gathered) : Arriving{};
  const Operand dup = up_gradient(layer);
  const Arriving dn2 = on.matmul_reduce(gradient_matmul(scratch.partial, dup, weights.up), scratch.reduced,
                                        static_cast<bool>(activation_gradient_amax(layer)), dup.sums);
  if (now) {
    output_weight_gradients(layer, dout);
    up_weight_gradient(layer, n2);
  } else {
    keep_gradient(layer, acts.grads.dout, dout);
  }
  norm_backward(on.compute, model, weights.norm2, dx, on.arrived(dn2), acts.x, acts.mean2, acts.rstd2, true);
  const Arriving n1 = now ? on.gather(acts.n1, scratch.gathered) : Arriving{};
  const Operand dqkv = qkv_gradient(layer);
  const Arriving dn1 =
      on.matmul_reduce(gradient_matmul(scratch.partial, dqkv, weights.qkv), scratch.reduced, false, dqkv.sums);
  if (now) qkv_weight_gradient(layer, n1);
  norm_backward(on.compute, model, weights.norm1, dx, on.arrived(dn1), acts.x, acts.mean1, acts.rstd1, true, dx_amax);
}

}  // namespace

Residual parallel_forward(const Layer& layer, const Residual& residual) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  branches(layer, residual);
  on.local_matmul(forward_matmul(scratch.partial, {acts.o, acts.amax.o}, weights.out));
  Matmul down = forward_matmul(scratch.partial, {acts.act, acts.amax.act}, weights.down);
  down.accumulate = true;
  const Arriving sum = on.matmul_reduce(down, scratch.reduced, static_cast<bool>(activation_amax(layer)));
  if (scratch.out_biases) {
    on.compute.submit(Add{scratch.out_biases, weights.out_bias.value, weights.down_bias.value, {}});
  }
  return {acts.x, on.arrived(sum), scratch.out_biases};
}

void parallel_backward(const Layer& layer, const Tensor& dx, WeightGradients when, const GradientAmaxes& amaxes) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const bool now = when == WeightGradients::now, shares_norm = on.shape.model->shares_norm();
  recompute(layer);
  // Gathers n again while its gradient is computed, and reduces that gradient while those of the weights are computed.
  const Tensor dout = activation_backward(layer, dx, acts.grads.dout, amaxes.has_dout);
  const Arriving n = now && shares_norm ? on.gather(acts.n1, scratch.gathered) : Arriving{};
  Matmul dattn = gradient_matmul(scratch.dattn, {dout, acts.amax.dout, acts.grads.rounded.dout}, weights.out);
  dattn.operands = on.operands(true);
  on.compute.submit(dattn);
  attention_backward(layer);
  if (!shares_norm) return norms_backward(layer, dx, dout, now, amaxes.dx);
  const Arriving dn = input_gradient(layer);
  if (now) {
    weight_gradients(layer, dout, n);
  } else {
    keep_gradient(layer, acts.grads.dout, dout);
  }
  norm_backward(on.compute, *on.shape.model, weights.norm1, dx, on.arrived(dn), acts.x, acts.mean1, acts.rstd1, true,
                amaxes.dx);
}

void parallel_weight_gradients(const Layer& layer) {
  const TensorParallel& on = layer.on;
  recompute(layer);
  if (on.shape.model->shares_norm()) {
    weight_gradients(layer, layer.acts.grads.dout, on.gather(layer.acts.n1, layer.scratch.gathered));
    return;
  }
  output_weight_gradients(layer, layer.acts.grads.dout);
  up_weight_gradient(layer, on.gather(layer.acts.n2, layer.scratch.gathered));
  qkv_weight_gradient(layer, on.gather(layer.acts.n1, layer.scratch.gathered));
}

}  // namespace ms::nn
