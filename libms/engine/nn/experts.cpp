// Experts in place of a layer's MLP. Every tp rank routes all tokens of its microbatch and computes its shard of every
// expert, so that around the experts there are the collectives of an MLP: a gather before and a reduction behind. With
// ep, a rank does so for the tokens of all ep ranks and for its own experts: another gather, inside of the first one,
// and another reduction. In it a token's experts are summed by rank, not in the order of their scores.
//
// The scores of a token's experts multiply the activation, before the last matmul: the gradient of a score then is a
// sum over a row that is at hand. On a rank it is that of the rank's shards and experts, and so is that of the logits:
// a partial sum, which the first rank of tp and ep alone adds the router's own losses to.
#include "nn/block.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

// How a router makes weights of its logits: an op of it, forward or backward, with nothing else set.
template <class Op>
Op rule_of_router(const ModelConfig& model) {
  Op op;
  op.sigmoid = model.router == "sigmoid", op.normalized = model.router_normalized;
  op.scale = static_cast<float>(model.router_scale);
  return op;
}
// The factors of shared experts are sigmoids.
template <class Op>
Op rule_of_gate() {
  Op op;
  op.sigmoid = true;
  return op;
}

void route(const Layer& layer, Route op, const Routing& routing) {
  op.experts = routing.experts, op.slots = routing.slots, op.tokens = routing.tokens;
  op.weights = routing.weights, op.offsets = routing.offsets, op.logits = routing.logits;
  layer.on.compute.submit(op);
}
void route_backward(const Layer& layer, RouteBwd op, const Routing& routing, const Tensor& dlogits,
                    const Tensor& dweights) {
  op.dlogits = dlogits, op.dweights = dweights;
  op.logits = routing.logits, op.experts = routing.experts, op.slots = routing.slots;
  layer.on.compute.submit(op);
}

// n2 of all tokens that the rank routes -> the rows of every slot.
void dispatch_input(const Layer& layer, const Tensor& n2) {
  layer.on.compute.submit(ExpertDispatch{layer.scratch.slots_in, n2, layer.acts.routing.tokens});
}
// The gradient of the layer's output -> that of every slot's output.
void dispatch_gradient(const Layer& layer, const Tensor& dout) {
  layer.on.compute.submit(ExpertDispatch{layer.scratch.slots_out, dout, layer.acts.routing.tokens});
}

GroupedMatmul grouped(const Layer& layer, const Tensor& c, const Tensor& a, const Tensor& weights, bool transpose_b) {
  return {.c = c,
          .a = a,
          .b = weights,
          .offsets = layer.acts.routing.offsets,
          .transpose_b = transpose_b,
          .ranks = layer.on.shape.ep};
}
void grouped_weight_gradient(const Layer& layer, const Weight& weight, const Tensor& dy, const Tensor& x) {
  layer.on.compute.submit(GroupedMatmul{.c = weight.grad,
                                        .a = dy,
                                        .b = x,
                                        .offsets = layer.acts.routing.offsets,
                                        .transpose_a = true,
                                        .accumulate = !layer.on.sets_gradients,
                                        .ranks = layer.on.shape.ep});
}

// Partial sums that are reduced over ep, or, without it, over tp.
const Tensor& routed_partial(const Layer& layer) {
  return layer.on.ep == nullptr ? layer.scratch.partial : layer.scratch.routed_partial;
}
// slots_out -> the sums of all tokens that the rank routes, in routed_partial().
void combine(const Layer& layer) {
  layer.on.compute.submit(ExpertCombine{routed_partial(layer), layer.scratch.slots_out, layer.acts.routing.slots});
}
// Adds the gradient of a matmul's operand to `sum`.
void add_gradient(const Layer& layer, const Tensor& sum, const Tensor& dy, const Weight& weight) {
  Matmul matmul = gradient_matmul(sum, {dy, {}}, weight);
  matmul.accumulate = true;
  layer.on.local_matmul(matmul);
}

// The gradients of the weights whose operand is the gradient of the layer's output, of which slots_out has the rows.
void output_weight_gradients(const Layer& layer, const Tensor& dout) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  grouped_weight_gradient(layer, weights.down, scratch.slots_out, acts.act);
  if (acts.shared.up) weight_gradient(layer, weights.shared_down, {dout, {}}, {acts.shared.act, {}}, {}, {});
}
// Those whose operand is the layer's input.
void input_weight_gradients(const Layer& layer, const Tensor& n2) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Tensor all = on.arrived(on.gather_routed(n2, scratch.routed));
  dispatch_input(layer, all);
  grouped_weight_gradient(layer, weights.up, acts.grads.dup, scratch.slots_in);
  weight_gradient(layer, weights.router, {acts.grads.dlogits, {}}, {all, {}}, {}, {});
  if (acts.shared.up) weight_gradient(layer, weights.shared_up, {acts.grads.dshared_up, {}}, {n2, {}}, {}, {});
  if (weights.shared_router.value)
    weight_gradient(layer, weights.shared_router, {acts.grads.dshared_logits, {}}, {n2, {}}, {}, {});
}

// scratch.dweights, and the router's losses -> grads.dlogits.
void router_backward(const Layer& layer, double loss_scale) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Shape& shape = on.shape;
  const ModelConfig& model = *shape.model;
  auto op = rule_of_router<RouteBwd>(model);
  const bool is_first = shape.tp_rank == 0 && shape.ep_rank == 0;
  if (is_first) op.z = static_cast<float>(shape.moe_z_loss * loss_scale);
  const bool balances = is_first && shape.moe_aux_loss > 0;
  if (balances || weights.load) on.compute.submit(ExpertCount{scratch.counts, acts.routing.experts});
  if (weights.load) on.compute.submit(ColumnSum{weights.load, scratch.counts});
  if (balances) {
    // A part's balance is E / k times the sum over its experts of (count / tokens) (sum of scores / tokens).
    const auto chosen = static_cast<double>(model.experts_per_token * shape.routed_tokens() / scratch.counts.rows);
    op.counts = scratch.counts;
    op.balance = static_cast<float>(shape.moe_aux_loss * static_cast<double>(model.experts) / chosen * loss_scale);
  }
  route_backward(layer, op, acts.routing, acts.grads.dlogits, scratch.dweights);
}

// The gradient of the layer's output, through the shared experts: adds that of n2 to scratch.partial.
void shared_backward(const Layer& layer, const Tensor& dout) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const LayerGrads& grads = acts.grads;
  on.local_matmul(gradient_matmul(scratch.dshared_act, {dout, {}}, weights.shared_down));
  on.compute.submit(SwigluBwd{
      grads.dshared_up, scratch.dshared_act, acts.shared.up, {}, acts.shared.gate.weights, scratch.dshared_weights});
  add_gradient(layer, scratch.partial, grads.dshared_up, weights.shared_up);
  if (!weights.shared_router.value) return;
  route_backward(layer, rule_of_gate<RouteBwd>(), acts.shared.gate, grads.dshared_logits, scratch.dshared_weights);
  add_gradient(layer, scratch.partial, grads.dshared_logits, weights.shared_router);
}

}  // namespace

void experts_in(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Tensor n2 = on.arrived(on.gather(acts.n2, scratch.gathered));
  const Tensor all = on.arrived(on.gather_routed(n2, scratch.routed));
  on.local_matmul(forward_matmul(acts.routing.logits, {all, {}}, weights.router));
  auto rule = rule_of_router<Route>(*on.shape.model);
  if (on.shape.ep > 1) rule.count = on.shape.own_experts(), rule.first = on.shape.ep_rank * rule.count;
  route(layer, rule, acts.routing);
  dispatch_input(layer, all);
  on.compute.submit(grouped(layer, acts.up, scratch.slots_in, weights.up.value, true));
  if (acts.shared.up) on.local_matmul(forward_matmul(acts.shared.up, {n2, {}}, weights.shared_up));
  if (weights.shared_router.value) {
    on.local_matmul(forward_matmul(acts.shared.gate.logits, {n2, {}}, weights.shared_router));
    route(layer, rule_of_gate<Route>(), acts.shared.gate);
  }
  activation_forward(layer);
}

Tensor experts_out(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  on.compute.submit(grouped(layer, scratch.slots_out, acts.act, weights.down.value, true));
  combine(layer);
  on.arrived(on.reduce_routed(routed_partial(layer), scratch.partial));
  if (!acts.shared.up) return on.arrived(on.reduce(scratch.partial, scratch.reduced));
  Matmul shared = forward_matmul(scratch.partial, {acts.shared.act, {}}, weights.shared_down);
  shared.accumulate = true;
  return on.arrived(on.matmul_reduce(shared, scratch.reduced));
}

Tensor experts_backward(const Layer& layer, const Tensor& dx, WeightGradients when, double loss_scale) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const LayerGrads& grads = acts.grads;
  const bool now = when == WeightGradients::now;
  const Tensor dout = on.arrived(on.gather(dx, grads.dout));
  const Arriving n2 = now ? on.gather(acts.n2, scratch.gathered) : Arriving{};
  dispatch_gradient(layer, on.arrived(on.gather_routed(dout, scratch.routed_dout)));
  on.compute.submit(grouped(layer, scratch.dact, scratch.slots_out, weights.down.value, false));
  on.compute.submit(SwigluBwd{grads.dup, scratch.dact, acts.up, {}, acts.routing.weights, scratch.dweights});
  router_backward(layer, loss_scale);
  if (now) output_weight_gradients(layer, dout);  // before slots_out is written again
  on.compute.submit(grouped(layer, scratch.slots_out, grads.dup, weights.up.value, false));
  combine(layer);
  add_gradient(layer, routed_partial(layer), grads.dlogits, weights.router);
  on.arrived(on.reduce_routed(routed_partial(layer), scratch.partial));
  if (acts.shared.up) shared_backward(layer, dout);
  const Arriving dn2 = on.reduce(scratch.partial, scratch.reduced);
  if (now) {
    input_weight_gradients(layer, on.arrived(n2));
  } else {
    keep_gradient(layer, grads.dout, dout);
  }
  return on.arrived(dn2);
}

void experts_weight_gradients(const Layer& layer) {
  const LayerGrads& grads = layer.acts.grads;
  const Arriving n2 = layer.on.gather(layer.acts.n2, layer.scratch.gathered);
  dispatch_gradient(layer, layer.on.arrived(layer.on.gather_routed(grads.dout, layer.scratch.routed_dout)));
  output_weight_gradients(layer, grads.dout);
  input_weight_gradients(layer, layer.on.arrived(n2));
}

}  // namespace ms::nn
