// Experts in place of a layer's MLP. Every tp rank routes all tokens of its microbatch and computes its shard of every
// expert, so that around the experts there are the collectives of an MLP: a gather before and a reduction behind.
//
// With ep a rank computes its own experts, for the tokens of all ep ranks. It routes its own tokens and exchanges the
// rows of their slots with the ranks that hold the experts (shape.exchanges_slots): as many bytes as tokens have
// experts, and a token's experts are summed in the order of their scores, as without ep. Or it routes the tokens of all
// ep ranks, after another gather, inside of the first one, and another reduction, which sums a token's experts by rank:
// as many bytes as there are ranks.
//
// The scores of a token's experts multiply the activation, before the last matmul: the gradient of a score then is a
// sum over a row that is at hand. On a rank it is that of the rank's shards, and of its experts where tokens are
// gathered, and so is that of the logits: a partial sum, to which one rank alone adds the router's own losses.
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

// Rows of the slots of the rank's experts, in `slots`. Where ranks exchange them they come from their owners' `own`,
// once `ready`, one part of the experts after the other. start() issues the first one.
struct Rows {
  Tensor slots, own;
  std::vector<ExpertRange> parts;
  tensor::Event ready;
  Arriving first;
};
Arriving exchange_part(const Layer& layer, const Rows& rows, ExpertRange range) {
  return layer.on.exchange_slots(rows.slots, rows.own, layer.acts.routing.all_offsets, false, rows.ready, range);
}
Rows start(const Layer& layer, Rows rows) {
  if (layer.on.shape.exchanges_slots) rows.first = exchange_part(layer, rows, rows.parts.front());
  return rows;
}
// x of all tokens that the rank routes -> its rows.
Rows dispatch(const Layer& layer, const Tensor& x, const Tensor& slots, const Tensor& own,
              std::vector<ExpertRange> parts) {
  const TensorParallel& on = layer.on;
  const bool exchanges = on.shape.exchanges_slots;
  on.compute.submit(ExpertDispatch{exchanges ? own : slots, x, layer.acts.routing.tokens});
  Rows rows{slots, own, std::move(parts), {}, {slots, {}}};
  if (!exchanges) return rows;
  rows.ready = on.compute.record();
  return rows;
}
// n2 -> slots_in.
Rows dispatch_input(const Layer& layer, const Tensor& n2, std::vector<ExpertRange> parts) {
  return dispatch(layer, n2, layer.scratch.slots_in, layer.scratch.own_in, std::move(parts));
}
// The gradient of the layer's output -> that of every slot's output, in slots_out.
Rows dispatch_gradient(const Layer& layer, const Tensor& dout) {
  return dispatch(layer, dout, layer.scratch.slots_out, layer.scratch.own_out, layer.on.expert_parts());
}
// Calls f(range) for every part of the rows as it arrives, and issues the exchange of the next one behind it: a backend
// whose host waits in an exchange then has issued work on those before.
template <class F>
void each_arriving(const Layer& layer, const Rows& rows, F&& f) {
  Arriving arriving = rows.first;
  for (std::size_t i = 0; i < rows.parts.size(); ++i) {
    layer.on.arrived(arriving);
    f(rows.parts[i]);
    if (i + 1 < rows.parts.size()) arriving = exchange_part(layer, rows, rows.parts[i + 1]);
  }
}

// Returns [1,n] as n rows of one number.
Tensor by_slot(const Tensor& numbers) { return numbers.reshape(numbers.cols, 1); }
// Tells every rank of ep the others' offsets, and moves the weights of slots to the rows of the experts' holders.
void share_routing(const Layer& layer) {
  const Routing& routing = layer.acts.routing;
  if (!layer.on.shape.exchanges_slots) return;
  layer.on.share_offsets(routing.offsets, routing.all_offsets);
  layer.on.exchange_slots(by_slot(routing.received_weights), by_slot(routing.weights), routing.all_offsets, false,
                          layer.on.compute.record());
}

GroupedMatmul grouped(const Layer& layer, const Tensor& c, const Tensor& a, const Tensor& b) {
  const Shape& shape = layer.on.shape;
  const Routing& routing = layer.acts.routing;
  GroupedMatmul matmul{.c = c, .a = a, .b = b, .offsets = routing.offsets};
  matmul.used = static_cast<double>(shape.even_slots()) / static_cast<double>(a.rows);
  if (shape.exchanges_slots) matmul.offsets = routing.all_offsets, matmul.rank = shape.ep_rank;
  return matmul;
}
GroupedMatmul grouped_forward(const Layer& layer, const Tensor& y, const Tensor& x, const Weight& weight) {
  GroupedMatmul matmul = grouped(layer, y, x, weight.value);
  matmul.transpose_b = true;
  return matmul;
}
// Issues the matmul on rows that arrive.
void multiply_arriving(const Layer& layer, GroupedMatmul matmul, const Rows& rows) {
  each_arriving(layer, rows, [&](ExpertRange range) {
    matmul.range = range;
    layer.on.compute.submit(matmul);
  });
}
// Issues the matmul whose result, in slots_out, goes back to this rank's own slots, where ranks exchange them. Returns
// what it becomes.
Arriving multiply_and_return(const Layer& layer, GroupedMatmul matmul) {
  const LayerScratch& scratch = layer.scratch;
  Arriving result{scratch.slots_out, {}};
  if (layer.on.shape.drops()) layer.on.compute.submit(Fill{scratch.own_out});  // of rows that do not come back
  for (const ExpertRange range : layer.on.expert_parts()) {
    matmul.range = range;
    layer.on.compute.submit(matmul);
    if (layer.on.shape.exchanges_slots) {
      result = layer.on.exchange_slots(scratch.own_out, scratch.slots_out, layer.acts.routing.all_offsets, true,
                                       layer.on.compute.record(), range);
    }
  }
  return result;
}
void grouped_weight_gradient(const Layer& layer, const Weight& weight, const Tensor& dy, const Tensor& x) {
  GroupedMatmul matmul = grouped(layer, weight.grad, dy, x);
  matmul.transpose_a = true, matmul.accumulate = !layer.on.sets_gradients;
  layer.on.compute.submit(matmul);
}

// Partial sums that are reduced over ep if tokens were gathered, or else over tp.
const Tensor& routed_partial(const Layer& layer) {
  return layer.on.shape.routed_ranks() == 1 ? layer.scratch.partial : layer.scratch.routed_partial;
}
// Rows that came back -> the sums of all tokens that the rank routes, in routed_partial().
void combine(const Layer& layer, const Arriving& back) {
  const Tensor rows = layer.on.arrived(back);
  layer.on.compute.submit(ExpertCombine{routed_partial(layer), rows, layer.acts.routing.slots});
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
// The layer's input once more: n2 of this rank's tokens, of all that it routes, and of the slots of its experts.
struct Input {
  Tensor n2, routed;
  Rows slots;
};
Input input_again(const Layer& layer, const Tensor& n2) {
  const Tensor routed = layer.on.arrived(layer.on.gather_routed(n2, layer.scratch.routed));
  return {n2, routed, dispatch_input(layer, routed, {{}})};
}
// Those whose operand is the layer's input: of the experts, and of all else.
void expert_input_gradients(const Layer& layer, const Input& input) {
  layer.on.arrived(input.slots.first);
  grouped_weight_gradient(layer, layer.weights.up, layer.acts.grads.dup, layer.scratch.slots_in);
}
void input_weight_gradients(const Layer& layer, const Input& input) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Tensor& n2 = input.n2;
  weight_gradient(layer, weights.router, {acts.grads.dlogits, {}}, {input.routed, {}}, {}, {});
  if (acts.shared.up) weight_gradient(layer, weights.shared_up, {acts.grads.dshared_up, {}}, {n2, {}}, {}, {});
  if (weights.shared_router.value)
    weight_gradient(layer, weights.shared_router, {acts.grads.dshared_logits, {}}, {n2, {}}, {}, {});
}

// scratch.dweights -> those of the slots of all tokens that the rank routes.
Arriving weights_back(const Layer& layer) {
  const LayerScratch& scratch = layer.scratch;
  if (!layer.on.shape.exchanges_slots) return {scratch.dweights, {}};
  if (layer.on.shape.drops()) layer.on.compute.submit(Fill{scratch.own_dweights});
  return {scratch.own_dweights, layer.on
                                    .exchange_slots(by_slot(scratch.own_dweights), by_slot(scratch.dweights),
                                                    layer.acts.routing.all_offsets, true, layer.on.compute.record())
                                    .event};
}
// Sends a 1 back for each row that the holder had room for, and counts them.
void count_kept(const Layer& layer) {
  const Tensor& load = layer.weights.buffers.load;
  layer.on.compute.submit(Fill{layer.scratch.dweights, 1});
  const Tensor kept = layer.on.arrived(weights_back(layer));
  layer.on.compute.submit(ColumnSum{load.slice_cols(load.cols - 1, 1), by_slot(kept)});
}
// dweights, of the slots of all tokens that the rank routes, and the router's losses -> grads.dlogits.
void router_backward(const Layer& layer, const Tensor& dweights, double loss_scale) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Shape& shape = on.shape;
  const ModelConfig& model = *shape.model;
  auto op = rule_of_router<RouteBwd>(model);
  const bool is_first = shape.tp_rank == 0 && (shape.exchanges_slots || shape.ep_rank == 0);
  if (is_first) op.z = static_cast<float>(shape.moe_z_loss * loss_scale);
  const bool balances = is_first && shape.moe_aux_loss > 0;
  const auto& [bias, chosen, load] = weights.buffers;
  if (balances || chosen || load) on.compute.submit(ExpertCount{scratch.counts, acts.routing.experts});
  if (chosen) on.compute.submit(ColumnSum{chosen, scratch.counts});
  if (load) on.compute.submit(ColumnSum{load.slice_cols(0, model.experts), scratch.counts});
  if (balances) {
    // A part's balance is E / k times the sum over its experts of (count / tokens) (sum of scores / tokens).
    const auto pairs = static_cast<double>(model.experts_per_token * shape.routed_tokens() / scratch.counts.rows);
    op.counts = scratch.counts;
    op.balance = static_cast<float>(shape.moe_aux_loss * static_cast<double>(model.experts) / pairs * loss_scale);
  }
  route_backward(layer, op, acts.routing, acts.grads.dlogits, dweights);
}

// The gradient of the layer's output, through the activation of the shared experts.
void shared_activation_backward(const Layer& layer, const Tensor& dout) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  on.local_matmul(gradient_matmul(scratch.dshared_act, {dout, {}}, weights.shared_down));
  on.compute.submit(SwigluBwd{acts.grads.dshared_up,
                              scratch.dshared_act,
                              acts.shared.up,
                              {},
                              acts.shared.gate.weights,
                              scratch.dshared_weights});
}
// Then adds that of n2 to scratch.partial.
void shared_input_backward(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const LayerGrads& grads = acts.grads;
  add_gradient(layer, scratch.partial, grads.dshared_up, weights.shared_up);
  if (!weights.shared_router.value) return;
  route_backward(layer, rule_of_gate<RouteBwd>(), acts.shared.gate, grads.dshared_logits, scratch.dshared_weights);
  add_gradient(layer, scratch.partial, grads.dshared_logits, weights.shared_router);
}

}  // namespace

void experts_in(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Shape& shape = on.shape;
  const Tensor n2 = on.arrived(on.gather(acts.n2, scratch.gathered));
  const Tensor all = on.arrived(on.gather_routed(n2, scratch.routed));
  on.local_matmul(forward_matmul(acts.routing.logits, {all, {}}, weights.router));
  auto rule = rule_of_router<Route>(*shape.model);
  rule.bias = weights.buffers.bias;
  rule.groups = shape.model->router_groups, rule.from_groups = shape.model->router_groups_per_token;
  if (shape.routed_ranks() > 1) rule.count = shape.own_experts(), rule.first = shape.ep_rank * rule.count;
  route(layer, rule, acts.routing);
  share_routing(layer);
  const Rows slots = start(layer, dispatch_input(layer, all, on.expert_parts()));
  // While rows are on their way.
  if (acts.shared.up) on.local_matmul(forward_matmul(acts.shared.up, {n2, {}}, weights.shared_up));
  if (weights.shared_router.value) {
    on.local_matmul(forward_matmul(acts.shared.gate.logits, {n2, {}}, weights.shared_router));
    route(layer, rule_of_gate<Route>(), acts.shared.gate);
  }
  multiply_arriving(layer, grouped_forward(layer, acts.up, scratch.slots_in, weights.up), slots);
  activation_forward(layer);
}

Tensor experts_out(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  combine(layer, multiply_and_return(layer, grouped_forward(layer, scratch.slots_out, acts.act, weights.down)));
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
  const Tensor routed_dout = on.arrived(on.gather_routed(dout, scratch.routed_dout));
  const Rows gradient = start(layer, dispatch_gradient(layer, routed_dout));
  Input input = now ? input_again(layer, on.arrived(n2)) : Input{};
  if (acts.shared.up) shared_activation_backward(layer, dout);  // while rows are on their way
  multiply_arriving(layer, grouped(layer, scratch.dact, scratch.slots_out, weights.down.value), gradient);
  if (now) input.slots = start(layer, std::move(input.slots));
  on.compute.submit(SwigluBwd{grads.dup, scratch.dact, acts.up, {}, expert_weights(layer), scratch.dweights});
  const Arriving dweights = weights_back(layer);
  if (now) output_weight_gradients(layer, dout);  // before slots_out is written again
  const Arriving back = multiply_and_return(layer, grouped(layer, scratch.slots_out, grads.dup, weights.up.value));
  if (now) expert_input_gradients(layer, input);
  router_backward(layer, on.arrived(dweights), loss_scale);
  if (weights.buffers.load && on.shape.drops()) count_kept(layer);
  combine(layer, back);
  add_gradient(layer, routed_partial(layer), grads.dlogits, weights.router);
  on.arrived(on.reduce_routed(routed_partial(layer), scratch.partial));
  if (acts.shared.up) shared_input_backward(layer);
  const Arriving dn2 = on.reduce(scratch.partial, scratch.reduced);
  if (now) {
    input_weight_gradients(layer, input);
  } else {
    keep_gradient(layer, grads.dout, dout);
  }
  return on.arrived(dn2);
}

void experts_weight_gradients(const Layer& layer) {
  const TensorParallel& on = layer.on;
  const LayerGrads& grads = layer.acts.grads;
  const Arriving n2 = on.gather(layer.acts.n2, layer.scratch.gathered);
  const Tensor dout = on.arrived(on.gather_routed(grads.dout, layer.scratch.routed_dout));
  const Rows gradient = start(layer, dispatch_gradient(layer, dout));
  Input input = input_again(layer, on.arrived(n2));
  input.slots = start(layer, std::move(input.slots));
  each_arriving(layer, gradient, [](ExpertRange) {});
  output_weight_gradients(layer, grads.dout);
  expert_input_gradients(layer, input);
  input_weight_gradients(layer, input);
}

}  // namespace ms::nn
