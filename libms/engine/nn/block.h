// The halves of a block, one function each, shared by the serial and the parallel block; layer.cpp chooses between the
// two. Internal to this module.
#pragma once

#include "nn/layer.h"

namespace ms::nn {

// acts.qkv -> acts.o; rotates the queries and keys in acts.qkv, or in acts.q and acts.k if they are normed.
void attention_forward(const Layer& layer);
// scratch.dattn -> grads.dqkv.
void attention_backward(const Layer& layer);
// acts.up -> acts.act.
void activation_forward(const Layer& layer);
// The gradient of the layer's output, dx, through the last matmul's weight and the activation -> grads.dup. Gathers dx
// into `into` and returns that, or returns dx if nothing is gathered. `has_amax`: acts.amax.dout is dx's already.
Tensor activation_backward(const Layer& layer, const Tensor& dx, const Tensor& into, bool has_amax);

// An operand of a matmul, with its amax if that is known, and rounded to fp8 if that is kept; `sums`, if set, receives
// the sums of its rows when it is rounded: the gradient of a bias.
struct Operand {
  Tensor value, amax, rounded = {}, sums = {};
};
// Returns Operand::sums of a gradient: that of the bias, if there is one and the gradient is kept rounded.
Tensor sums_of_rounding(const Layer& layer, const Tensor& rounded, const Weight& bias);
// The gradients of acts.up and acts.qkv, whose matmuls have a place each for these sums.
Operand up_gradient(const Layer& layer);
Operand qkv_gradient(const Layer& layer);
// Where activation_forward() and activation_backward() leave the amax of acts.act and of grads.dup; absent if they do
// not.
Tensor activation_amax(const Layer& layer);
Tensor activation_gradient_amax(const Layer& layer);
// Return the matmuls c = x W^T (+ bias), and c = dy W, the gradient of x. layer.on issues them and may set the operand.
tensor::Matmul forward_matmul(const Tensor& c, const Operand& x, const Weight& weight, const Weight& bias = {});
tensor::Matmul gradient_matmul(const Tensor& c, const Operand& dy, const Weight& weight);
// Issues grad += dy^T x, and the gradient of the bias, if there is one, += the sums of the rows `summed` of dy, all or
// this rank's, unless they are dy.sums; or sets them (layer.on).
void weight_gradient(const Layer& layer, const Weight& weight, const Operand& dy, const Operand& x, const Weight& bias,
                     const Tensor& summed);

// The factors of the rows that this rank's experts compute.
inline const Tensor& expert_weights(const Layer& layer) {
  const Routing& routing = layer.acts.routing;
  return routing.received_weights ? routing.received_weights : routing.weights;
}
// The routers (router.cpp): acts.routing and acts.shared.gate from their logits.
void route_tokens(const Layer& layer);
void route_to_shared(const Layer& layer);
// dweights, of the slots of all tokens that the rank routes, and the router's losses -> grads.dlogits.
void router_backward(const Layer& layer, const Tensor& dweights, double loss_scale);
// scratch.dshared_weights -> grads.dshared_logits.
void shared_router_backward(const Layer& layer);
// Experts in place of the MLP (experts.cpp), each of the halves below. acts.n2 -> acts.act.
void experts_in(const Layer& layer);
// acts.act -> the sum over each token's experts, and over tp.
Tensor experts_out(const Layer& layer);
// dx, the gradient of the layer's output -> that of acts.n2, and of the experts' weights unless they are `later`.
Tensor experts_backward(const Layer& layer, const Tensor& dx, WeightGradients when, double loss_scale);
// The weights' gradients that `later` has left.
void experts_weight_gradients(const Layer& layer);

// Returns this rank's rows of a gathered [T,n]: [Ts,n].
Tensor own_rows(const Layer& layer, const Tensor& gathered);
// Keeps the gradient `gathered` (by gather_matmul(), into `into`) for later: if nothing was gathered, it is the dx that
// is about to change.
void keep_gradient(const Layer& layer, const Tensor& into, const Tensor& gathered);

// Like the functions of layer.h that start with "layer".
Residual serial_forward(const Layer& layer, const Residual& residual);
void serial_backward(const Layer& layer, const Tensor& dx, WeightGradients when, const GradientAmaxes& amaxes,
                     double loss_scale);
void serial_weight_gradients(const Layer& layer);
Residual parallel_forward(const Layer& layer, const Residual& residual);
void parallel_backward(const Layer& layer, const Tensor& dx, WeightGradients when, const GradientAmaxes& amaxes);
void parallel_weight_gradients(const Layer& layer);

}  // namespace ms::nn
