#include "nn/layer.h"

#include "nn/block.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

void norm_forward(Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& x,
                  const Tensor& y, const Tensor& mean, const Tensor& rstd, const Residual& residual,
                  const Tensor& amax) {
  if (residual && !model.fused) {
    stream.submit(Add{x, residual.a, residual.b, residual.bias});
    return norm_forward(stream, model, weights, x, y, mean, rstd, {}, amax);
  }
  const auto eps = static_cast<float>(model.norm_eps);
  if (model.has_layer_norm()) {
    stream.submit(LayerNormFwd{y, mean, rstd, x, weights.gain.value, weights.bias.value, eps, residual, amax});
  } else {
    stream.submit(RmsNormFwd{y, rstd, x, weights.gain.value, eps, residual, 1, amax});
  }
}

void norm_backward(Stream& stream, const ModelConfig& model, const NormWeights& weights, const Tensor& dx,
                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd, bool accumulate,
                   const Tensor& amax) {
  if (model.has_layer_norm()) {
    stream.submit(LayerNormBwd{dx, weights.gain.grad, weights.bias.grad, dy, x, mean, rstd, weights.gain.value,
                               accumulate, amax});
  } else {
    stream.submit(RmsNormBwd{dx, weights.gain.grad, dy, x, rstd, weights.gain.value, accumulate, 1, amax});
  }
}

Tensor activation_amax(const Layer& layer) { return layer.on.fused_amax(layer.acts.amax.act); }

void activation_forward(const Layer& layer) {
  const Tensor amax = activation_amax(layer);
  const SharedExperts& shared = layer.acts.shared;
  if (shared.act) layer.on.compute.submit(SwigluFwd{shared.act, shared.up, {}, shared.gate.weights});
  if (layer.on.shape.model->gated()) {
    layer.on.compute.submit(SwigluFwd{layer.acts.act, layer.acts.up, amax, expert_weights(layer)});
  } else {
    layer.on.compute.submit(GeluFwd{layer.acts.act, layer.acts.up, amax, layer.on.shape.model->exact_gelu});
  }
}

Tensor activation_gradient_amax(const Layer& layer) {
  return layer.on.shape.joins_gelu() ? Tensor{} : layer.on.fused_amax(layer.acts.amax.dup);
}

Tensor sums_of_rounding(const Layer& layer, const Tensor& rounded, const Weight& bias) {
  return layer.on.shape.model->fused && rounded ? bias.grad : Tensor{};
}

Operand up_gradient(const Layer& layer) {
  const Tensor& rounded = layer.acts.grads.rounded.dup;
  return {layer.acts.grads.dup, layer.acts.amax.dup, rounded, sums_of_rounding(layer, rounded, layer.weights.up_bias)};
}
Operand qkv_gradient(const Layer& layer) {
  const Tensor& rounded = layer.acts.grads.rounded.dqkv;
  return {layer.acts.grads.dqkv, layer.acts.amax.dqkv, rounded,
          sums_of_rounding(layer, rounded, layer.weights.qkv_bias)};
}

Tensor activation_backward(const Layer& layer, const Tensor& dx, const Tensor& into, bool has_amax) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  Matmul matmul = gradient_matmul(scratch.dact, {{}, acts.amax.dout, acts.grads.rounded.dout}, weights.down);
  const Tensor sums = sums_of_rounding(layer, acts.grads.rounded.dout, weights.down_bias);
  if (on.shape.joins_gelu()) {
    matmul.c = acts.grads.dup, matmul.gelu_x = acts.up;
    return on.gather_matmul(matmul, dx, into, has_amax, sums);
  }
  const Tensor dout = on.gather_matmul(matmul, dx, into, has_amax, sums);
  const Tensor amax = activation_gradient_amax(layer);
  if (on.shape.model->gated()) {
    on.compute.submit(SwigluBwd{acts.grads.dup, scratch.dact, acts.up, amax});
  } else {
    on.compute.submit(GeluBwd{acts.grads.dup, scratch.dact, acts.up, amax, on.shape.model->exact_gelu});
  }
  return dout;
}

Matmul forward_matmul(const Tensor& c, const Operand& x, const Weight& weight, const Weight& bias) {
  return {.c = c,
          .a = x.value,
          .b = weight.value,
          .bias = bias.value,
          .transpose_b = true,
          .a_amax = x.amax,
          .b_amax = weight.rounded.amax,
          .b_rounded = weight.rounded.value};
}

Matmul gradient_matmul(const Tensor& c, const Operand& dy, const Weight& weight) {
  return {.c = c,
          .a = dy.value,
          .b = weight.value,
          .a_amax = dy.amax,
          .b_amax = weight.rounded.amax,
          .a_rounded = dy.rounded,
          .b_rounded = weight.rounded.value};
}

void weight_gradient(const Layer& layer, const Weight& weight, const Operand& dy, const Operand& x, const Weight& bias,
                     const Tensor& summed) {
  const TensorParallel& on = layer.on;
  const bool joins_sums = on.shape.model->fused && !on.fp8 && summed.rows == dy.value.rows;
  if (bias.grad && !joins_sums && !dy.sums) on.compute.submit(ColumnSum{bias.grad, summed, !on.sets_gradients});
  on.compute.submit(Matmul{.c = weight.grad,
                           .a = dy.value,
                           .b = x.value,
                           .transpose_a = true,
                           .accumulate = !on.sets_gradients,
                           .operands = on.operands(true),
                           .a_sums = joins_sums ? bias.grad : Tensor{},
                           .a_amax = dy.amax,
                           .b_amax = x.amax,
                           .a_rounded = dy.rounded});
}

Tensor own_rows(const Layer& layer, const Tensor& gathered) {
  const Shape& shape = layer.on.shape;
  const std::int64_t rows = shape.shard_tokens();
  return rows == shape.tokens() ? gathered : gathered.slice_rows(shape.tp_rank * rows, rows);
}

void keep_gradient(const Layer& layer, const Tensor& into, const Tensor& gathered) {
  if (gathered.data != into.data) layer.on.compute.submit(Copy{into, gathered});
}

void round_weights(Stream& stream, const LayerWeights& weights) {
  for (const Weight& weight : {weights.qkv, weights.out, weights.up, weights.down, weights.in}) {
    const auto& [value, amax] = weight.rounded;
    if (value) stream.submit(RoundToFp8{value, amax, weight.value});
  }
}

Residual layer_forward(const Layer& layer, const Residual& residual) {
  return layer.on.shape.model->parallel_block ? parallel_forward(layer, residual) : serial_forward(layer, residual);
}

void layer_backward(const Layer& layer, const Tensor& dx, WeightGradients when, const GradientAmaxes& amaxes,
                    double loss_scale) {
  MS_ASSERT(when == WeightGradients::now || layer.on.shape.split_backward, "nothing is kept for later");
  return layer.on.shape.model->parallel_block ? parallel_backward(layer, dx, when, amaxes)
                                              : serial_backward(layer, dx, when, amaxes, loss_scale);
}

void layer_weight_gradients(const Layer& layer) {
  return layer.on.shape.model->parallel_block ? parallel_weight_gradients(layer) : serial_weight_gradients(layer);
}

}  // namespace ms::nn
