// Experts in place of a layer's MLP. Every tp rank routes all tokens of its microbatch and computes its shard of every
// expert, so that around the experts there are the collectives of an MLP: a gather before and a reduction behind.
//
// The scores of a token's experts multiply the activation, before the last matmul: the gradient of a score then is a
// sum over a row that is at hand. On a tp rank it is that of the rank's shard, and so is that of the logits: a partial
// sum, which rank 0 alone adds the router's own losses to.
#include "nn/block.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

// n2 of all tokens -> the rows of every slot.
void dispatch_input(const Layer& layer, const Tensor& n2) {
  layer.on.compute.submit(ExpertDispatch{layer.scratch.slots_in, n2, layer.acts.routing.tokens});
}
// The gradient of the layer's output -> that of every slot's output.
void dispatch_gradient(const Layer& layer, const Tensor& dout) {
  layer.on.compute.submit(ExpertDispatch{layer.scratch.slots_out, dout, layer.acts.routing.tokens});
}

GroupedMatmul weights_of(const Layer& layer, const Weight& weight, const Tensor& dy, const Tensor& x) {
  return {.c = weight.grad,
          .a = dy,
          .b = x,
          .offsets = layer.acts.routing.offsets,
          .transpose_a = true,
          .accumulate = !layer.on.sets_gradients};
}
void down_gradient(const Layer& layer) {
  layer.on.compute.submit(weights_of(layer, layer.weights.down, layer.scratch.slots_out, layer.acts.act));
}
void up_and_router_gradients(const Layer& layer, const Tensor& n2) {
  dispatch_input(layer, n2);
  layer.on.compute.submit(weights_of(layer, layer.weights.up, layer.acts.grads.dup, layer.scratch.slots_in));
  weight_gradient(layer, layer.weights.router, {layer.acts.grads.dlogits, {}}, {n2, {}}, {}, {});
}

// scratch.dweights, and the router's losses -> grads.dlogits.
void router_backward(const Layer& layer, double loss_scale) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Shape& shape = on.shape;
  const ModelConfig& model = *shape.model;
  RouteBwd op{.dlogits = acts.grads.dlogits,
              .dweights = scratch.dweights,
              .logits = acts.routing.logits,
              .experts = acts.routing.experts,
              .slots = acts.routing.slots,
              .sigmoid = model.router == "sigmoid",
              .normalized = model.router_normalized,
              .scale = static_cast<float>(model.router_scale)};
  if (shape.tp_rank == 0) op.z = static_cast<float>(shape.moe_z_loss * loss_scale);
  if (shape.tp_rank == 0 && scratch.counts) {
    on.compute.submit(ExpertCount{scratch.counts, acts.routing.experts});
    // A part's balance is E / k times the sum over its experts of (count / tokens) (sum of scores / tokens).
    const double chosen = static_cast<double>(model.experts_per_token * shape.tokens() / scratch.counts.rows);
    op.counts = scratch.counts;
    op.balance = static_cast<float>(shape.moe_aux_loss * static_cast<double>(model.experts) / chosen * loss_scale);
  }
  on.compute.submit(op);
}

}  // namespace

void experts_in(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const ModelConfig& model = *on.shape.model;
  const Routing& routing = acts.routing;
  const Tensor n2 = on.gather_matmul(forward_matmul(routing.logits, {}, weights.router), acts.n2, scratch.gathered);
  on.compute.submit(Route{.experts = routing.experts,
                          .slots = routing.slots,
                          .tokens = routing.tokens,
                          .weights = routing.weights,
                          .offsets = routing.offsets,
                          .logits = routing.logits,
                          .sigmoid = model.router == "sigmoid",
                          .normalized = model.router_normalized,
                          .scale = static_cast<float>(model.router_scale)});
  dispatch_input(layer, n2);
  on.compute.submit(GroupedMatmul{
      .c = acts.up, .a = scratch.slots_in, .b = weights.up.value, .offsets = routing.offsets, .transpose_b = true});
  activation_forward(layer);
}

Tensor experts_out(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  on.compute.submit(GroupedMatmul{.c = scratch.slots_out,
                                  .a = acts.act,
                                  .b = weights.down.value,
                                  .offsets = acts.routing.offsets,
                                  .transpose_b = true});
  on.compute.submit(ExpertCombine{scratch.partial, scratch.slots_out, acts.routing.slots});
  return on.arrived(on.reduce(scratch.partial, scratch.reduced));
}

Tensor experts_backward(const Layer& layer, const Tensor& dx, WeightGradients when, double loss_scale) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const LayerGrads& grads = acts.grads;
  const Routing& routing = acts.routing;
  const bool now = when == WeightGradients::now;
  const Tensor dout = on.arrived(on.gather(dx, grads.dout));
  const Arriving n2 = now ? on.gather(acts.n2, scratch.gathered) : Arriving{};
  dispatch_gradient(layer, dout);
  on.compute.submit(
      GroupedMatmul{.c = scratch.dact, .a = scratch.slots_out, .b = weights.down.value, .offsets = routing.offsets});
  on.compute.submit(SwigluBwd{grads.dup, scratch.dact, acts.up, {}, routing.weights, scratch.dweights});
  router_backward(layer, loss_scale);
  if (now) down_gradient(layer);  // before its operand makes room
  on.compute.submit(
      GroupedMatmul{.c = scratch.slots_out, .a = grads.dup, .b = weights.up.value, .offsets = routing.offsets});
  on.compute.submit(ExpertCombine{scratch.partial, scratch.slots_out, routing.slots});
  Matmul router = gradient_matmul(scratch.partial, {grads.dlogits, {}}, weights.router);
  router.accumulate = true;
  const Arriving dn2 = on.matmul_reduce(router, scratch.reduced);
  if (now) {
    up_and_router_gradients(layer, on.arrived(n2));
  } else {
    keep_gradient(layer, grads.dout, dout);
  }
  return on.arrived(dn2);
}

void experts_weight_gradients(const Layer& layer) {
  const TensorParallel& on = layer.on;
  const Arriving n2 = on.gather(layer.acts.n2, layer.scratch.gathered);
  dispatch_gradient(layer, layer.acts.grads.dout);
  down_gradient(layer);
  up_and_router_gradients(layer, on.arrived(n2));
}

}  // namespace ms::nn
