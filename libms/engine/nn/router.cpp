// The routers of a layer with experts: which experts a token goes to, with which weights, and the gradients of that.
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

// The first of a rank's share of the tokens, among those that it routes.
std::int64_t first_of_share(const Shape& shape) {
  return shape.routed_ranks() > 1 ? shape.ep_rank * shape.share_tokens() : 0;
}
// Routing::experts of all tokens of the tp group, or of those that the rank routes.
Tensor all_experts(const Layer& layer) {
  const Shape& shape = layer.on.shape;
  const Tensor &routed = layer.acts.routing.experts, &all = layer.scratch.experts;
  if (!all) return routed;
  layer.on.gather_small(routed.slice_rows(first_of_share(shape), shape.share_tokens()).flat(), all);
  return all.reshape(all.numel() / routed.cols, routed.cols);
}
// Issues the op for each of the parts of the tokens in which counts are that a rank's share has tokens of. The router's
// losses of other tokens are added by the ranks that have them.
void route_backward_by_part(const Layer& layer, const RouteBwd& op, const Tensor& dweights) {
  const Shape& shape = layer.on.shape;
  const auto issue = [&](const RouteBwd& one, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    Routing some = layer.acts.routing;
    for (Tensor* x : {&some.logits, &some.experts, &some.slots}) *x = x->slice_rows(begin, end - begin);
    route_backward(layer, one, some, layer.acts.grads.dlogits.slice_rows(begin, end - begin), dweights);
  };
  RouteBwd of_others = op;
  of_others.counts = {}, of_others.balance = of_others.z = 0;
  const std::int64_t rows = shape.share_tokens(), share = first_of_share(shape), first = shape.tp_rank * rows;
  issue(of_others, 0, share);
  const std::int64_t part = op.counts ? shape.tokens() / op.counts.rows : shape.tokens();
  for (std::int64_t begin = 0, end = 0; begin < rows; begin = end) {
    const std::int64_t index = (first + begin) / part;
    end = std::min(rows, (index + 1) * part - first);
    RouteBwd one = op;
    if (op.counts) one.counts = op.counts.slice_rows(index, 1);
    issue(one, share + begin, share + end);
  }
  issue(of_others, share + rows, shape.routed_tokens());
}

}  // namespace

void route_tokens(const Layer& layer) {
  const Shape& shape = layer.on.shape;
  auto rule = rule_of_router<Route>(*shape.model);
  rule.bias = layer.weights.buffers.bias;
  rule.groups = shape.model->router_groups, rule.from_groups = shape.model->router_groups_per_token;
  if (shape.routed_ranks() > 1) rule.count = shape.own_experts(), rule.first = shape.ep_rank * rule.count;
  route(layer, rule, layer.acts.routing);
  if (!shape.exchanges_slots) layer.on.compute.copy_to_host(layer.acts.routing.offsets);
}

void route_to_shared(const Layer& layer) { route(layer, rule_of_gate<Route>(), layer.acts.shared.gate); }

void shared_router_backward(const Layer& layer) {
  route_backward(layer, rule_of_gate<RouteBwd>(), layer.acts.shared.gate, layer.acts.grads.dshared_logits,
                 layer.scratch.dshared_weights);
}

void router_backward(const Layer& layer, const Tensor& dweights, double loss_scale) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Shape& shape = on.shape;
  const ModelConfig& model = *shape.model;
  auto op = rule_of_router<RouteBwd>(model);
  const bool shares = shape.shares_routing();
  const bool adds_losses = shares || (shape.tp_rank == 0 && (shape.exchanges_slots || shape.ep_rank == 0));
  if (adds_losses) op.z = static_cast<float>(shape.moe_z_loss * loss_scale);
  const bool balances = adds_losses && shape.moe_aux_loss > 0;
  const auto& [bias, chosen, load] = weights.buffers;
  const bool counts = balances || chosen || load;
  const Tensor experts = counts ? all_experts(layer) : Tensor{};
  if (counts) on.compute.submit(ExpertCount{scratch.counts, experts});
  if (chosen) on.compute.submit(ColumnSum{chosen, scratch.counts});
  if (load && shape.tp_rank == 0) on.compute.submit(ColumnSum{load.slice_cols(0, model.experts), scratch.counts});
  if (balances) {
    // A part's balance is E / k times the sum over its experts of (count / tokens) (sum of scores / tokens).
    const auto pairs = static_cast<double>(experts.numel() / scratch.counts.rows);
    op.counts = scratch.counts;
    op.balance = static_cast<float>(shape.moe_aux_loss * static_cast<double>(model.experts) / pairs * loss_scale);
  }
  if (shares) return route_backward_by_part(layer, op, dweights);
  route_backward(layer, op, acts.routing, acts.grads.dlogits, dweights);
}

}  // namespace ms::nn
