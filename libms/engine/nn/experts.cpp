// Experts in place of a layer's MLP. Every tp rank routes all tokens of its microbatch and computes its shard of every
// expert, so that around the experts there are the collectives of an MLP: a gather before and a reduction behind. If tp
// is folded (shape.folds_tp), a tp rank routes its share of the tokens alone and computes whole experts, so that there
// is neither; and what this comment says of a rank's tokens is of that share.
//
// With ep a rank computes its own experts, for the tokens of all ep ranks. It routes its own tokens and exchanges the
// rows of their slots with the ranks that hold the experts (shape.exchanges_slots): as many bytes as tokens have
// experts, and a token's experts are summed in the order of their scores, as without ep. Over tp, each rank routes its
// share of the tokens alone (shape.shares_routing()): the ranks with an expert's shards gather the rows that they
// received, and sum their results of each row before it goes back, so that ep moves a row once; if tp is folded, there
// is nothing to gather or to sum. Or a rank routes the tokens of all ep ranks, after another gather, inside of the
// first one, and another reduction, which sums a token's experts by rank: as many bytes as there are ranks.
//
// The scores of a token's experts multiply the activation, before the last matmul: the gradient of a score then is a
// sum over a row that is at hand. On a rank it is that of the rank's shards, and of its experts where tokens are
// gathered, and so is that of the logits: a partial sum, to which one rank alone adds the router's own losses. Where
// routing is shared it is whole, of the rank's share of the tokens.
#include <optional>

#include "nn/block.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

// Rows of the slots of the rank's experts, in places.held. Where ranks exchange them they come from their owners, once
// `ready`, one part of the experts after the other. start() issues the first one.
struct Rows {
  SlotRows places;
  std::vector<ExpertRange> parts;
  tensor::Event ready;
  Arriving first;
};
Arriving exchange_part(const Layer& layer, const Rows& rows, ExpertRange range) {
  return layer.on.dispatch_rows(rows.places, layer.acts.routing.all_offsets, rows.ready, range);
}
Rows start(const Layer& layer, Rows rows) {
  if (layer.on.shape.exchanges_slots) rows.first = exchange_part(layer, rows, rows.parts.front());
  return rows;
}
// x of all tokens that the rank routes -> its rows.
Rows dispatch(const Layer& layer, const Tensor& x, const SlotRows& places, std::vector<ExpertRange> parts) {
  const TensorParallel& on = layer.on;
  const bool exchanges = on.shape.exchanges_slots;
  on.compute.submit(ExpertDispatch{exchanges ? places.own : places.held, x, layer.acts.routing.tokens});
  Rows rows{places, std::move(parts), {}, {places.held, {}}};
  if (!exchanges) return rows;
  rows.ready = on.compute.record();
  return rows;
}
// n2 -> scratch.in.
Rows dispatch_input(const Layer& layer, const Tensor& n2, std::vector<ExpertRange> parts) {
  return dispatch(layer, n2, layer.scratch.in, std::move(parts));
}
// The gradient of the layer's output -> that of every slot's output, in scratch.out.
Rows dispatch_gradient(const Layer& layer, const Tensor& dout) {
  return dispatch(layer, dout, layer.scratch.out, layer.on.expert_parts());
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
  const SlotRows weights{routing.weights, routing.received_weights, layer.scratch.dweights.received, {}};
  layer.on.dispatch_rows(weights.by_slot(), routing.all_offsets, layer.on.compute.record());
}

GroupedMatmul grouped(const Layer& layer, const Tensor& c, const Tensor& a, const Tensor& b) {
  const Shape& shape = layer.on.shape;
  const Routing& routing = layer.acts.routing;
  GroupedMatmul matmul{.c = c, .a = a, .b = b, .offsets = routing.offsets};
  matmul.used = static_cast<double>(shape.even_rows()) / static_cast<double>(a.rows);
  if (shape.exchanges_slots) {
    matmul.offsets = routing.all_offsets;
    matmul.rank = shape.ep_rank, matmul.members = shape.gathered_shares();
  }
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
// Issues the matmul whose result, in scratch.out, goes back to this rank's own slots, where ranks exchange them.
// Returns what it becomes. A part goes on its last way when the next one is issued, to be multiplied meanwhile.
Arriving multiply_and_return(const Layer& layer, GroupedMatmul matmul) {
  const TensorParallel& on = layer.on;
  const SlotRows& rows = layer.scratch.out;
  const Tensor& offsets = layer.acts.routing.all_offsets;
  if (!on.shape.exchanges_slots) {
    on.compute.submit(matmul);
    return {rows.held, {}};
  }
  if (on.shape.drops()) on.compute.submit(Fill{rows.own});  // of rows that do not come back
  Arriving result;
  std::optional<std::pair<tensor::Event, ExpertRange>> started;
  const auto finish = [&] { result = on.finish_return(rows, offsets, started->first, started->second); };
  for (const ExpertRange range : on.expert_parts()) {
    matmul.range = range;
    on.compute.submit(matmul);
    const tensor::Event next = on.start_return(rows, offsets, range);
    if (started) finish();
    started = {next, range};
  }
  finish();
  return result;
}
void grouped_weight_gradient(const Layer& layer, const Weight& weight, const Tensor& dy, const Tensor& x) {
  GroupedMatmul matmul = grouped(layer, weight.grad, dy, x);
  matmul.transpose_a = true, matmul.accumulate = !layer.on.sets_gradients;
  layer.on.compute.submit(matmul);
}

// Whether the sums of the rank's own tokens are whole when its rows are back: nothing is reduced over tp.
bool is_whole(const Layer& layer) { return layer.on.shape.shares_routing() && !layer.acts.shared.up; }
// Where these sums go.
Tensor own_sums(const Layer& layer) {
  const TensorParallel& on = layer.on;
  if (is_whole(layer) && on.shape.sequence_parallel) return layer.scratch.reduced;
  return on.routed_share(layer.scratch.partial);
}
// Where those of all tokens that the rank routes go: partial ones, if others' tokens were gathered.
Tensor routed_sums(const Layer& layer) {
  return layer.on.shape.routed_ranks() > 1 ? layer.scratch.routed_partial : own_sums(layer);
}
// routed_sums() of all ranks of ep -> own_sums(). Where each rank of tp has whole ones of all tokens, one rank keeps
// them.
void sum_over_ep(const Layer& layer) {
  const TensorParallel& on = layer.on;
  on.arrived(on.reduce_routed(routed_sums(layer), own_sums(layer)));
  if (on.shape.folds_tp && !on.shape.shares_routing() && on.shape.tp_rank > 0)
    on.compute.submit(Fill{layer.scratch.partial});
}
// Rows that came back -> routed_sums().
void combine(const Layer& layer, const Arriving& back) {
  const TensorParallel& on = layer.on;
  const Tensor rows = on.arrived(back);
  if (on.shape.shares_routing() && !is_whole(layer)) on.compute.submit(Fill{layer.scratch.partial});  // of other ranks
  on.compute.submit(ExpertCombine{routed_sums(layer), rows, layer.acts.routing.slots});
}
// These sums, with what shared experts added to partial ones -> those of this rank's tokens over tp.
Arriving sums_over_tp(const Layer& layer) {
  const TensorParallel& on = layer.on;
  if (!is_whole(layer)) return on.reduce(layer.scratch.partial, layer.scratch.reduced);
  const Tensor own = own_sums(layer);
  return on.shape.sequence_parallel ? Arriving{own, {}} : on.gather_shares(layer.scratch.partial);
}
// Adds the gradient of a matmul's operand to `sum`.
void add_gradient(const Layer& layer, const Tensor& sum, const Tensor& dy, const Weight& weight) {
  Matmul matmul = gradient_matmul(sum, {dy, {}}, weight);
  matmul.accumulate = true;
  layer.on.local_matmul(matmul);
}

// The gradients of the weights whose operand is the gradient of the layer's output, of which scratch.out has the rows.
void output_weight_gradients(const Layer& layer, const Tensor& dout) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  grouped_weight_gradient(layer, weights.down, scratch.out.held, acts.act);
  if (acts.shared.up) weight_gradient(layer, weights.shared_down, {dout, {}}, {acts.shared.act, {}}, {}, {});
}
// Gathers x, n2 or a gradient of its shape, of the tokens of the tp group, where it is needed.
Arriving gather_all(const Layer& layer, const Tensor& x, const Tensor& into) {
  return is_whole(layer) ? Arriving{} : layer.on.gather(x, into);
}
// Returns x of the tokens that the rank routes; `all`: gather_all(x).
Tensor routed_of(const Layer& layer, const Tensor& x, const Arriving& all, const Tensor& into) {
  const TensorParallel& on = layer.on;
  const Tensor own = on.shape.shares_routing() ? on.routed_share(x) : on.arrived(all);
  return on.arrived(on.gather_routed(own, into));
}
// The layer's input once more: n2 of this rank's tokens, of all that it routes, and of the slots of its experts.
struct Input {
  Tensor n2, routed;
  Rows slots;
};
Input input_again(const Layer& layer, const Arriving& gathered) {
  const Tensor routed = routed_of(layer, layer.acts.n2, gathered, layer.scratch.routed);
  return {layer.on.arrived(gathered), routed, dispatch_input(layer, routed, {{}})};
}
// Those whose operand is the layer's input: of the experts, and of all else.
void expert_input_gradients(const Layer& layer, const Input& input) {
  layer.on.arrived(input.slots.first);
  grouped_weight_gradient(layer, layer.weights.up, layer.acts.grads.dup, layer.scratch.in.held);
}
void input_weight_gradients(const Layer& layer, const Input& input) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Tensor& n2 = input.n2;
  weight_gradient(layer, weights.router, {acts.grads.dlogits, {}}, {input.routed, {}}, {}, {});
  if (acts.shared.up) weight_gradient(layer, weights.shared_up, {acts.grads.dshared_up, {}}, {n2, {}}, {}, {});
  if (weights.shared_router.value)
    weight_gradient(layer, weights.shared_router, {acts.grads.dshared_logits, {}}, {n2, {}}, {}, {});
}

// scratch.dweights.held -> those of the slots of all tokens that the rank routes, in two steps, between which compute
// has other work: the first waits for the exchanges that were issued before it.
tensor::Event start_weights_back(const Layer& layer) {
  const TensorParallel& on = layer.on;
  const SlotRows& all = layer.scratch.dweights;
  if (!on.shape.exchanges_slots) return {};
  if (on.shape.drops()) on.compute.submit(Fill{all.own});
  return on.start_return(all.by_slot(), layer.acts.routing.all_offsets);
}
Arriving weights_back(const Layer& layer, const tensor::Event& started) {
  const SlotRows& all = layer.scratch.dweights;
  if (!layer.on.shape.exchanges_slots) return {all.held, {}};
  return {all.own, layer.on.finish_return(all.by_slot(), layer.acts.routing.all_offsets, started).event};
}
// Sends a 1 back for each row that the holder had room for, and counts them. Of holders whose sum comes back, one does.
void count_kept(const Layer& layer) {
  const Shape& shape = layer.on.shape;
  const Tensor& load = layer.weights.buffers.load;
  const bool counts = shape.gathered_shares() == 1 || shape.tp_rank == 0;
  layer.on.compute.submit(Fill{layer.scratch.dweights.held, counts ? 1.0F : 0.0F});
  const Tensor kept = layer.on.arrived(weights_back(layer, start_weights_back(layer)));
  layer.on.compute.submit(ColumnSum{load.slice_cols(load.cols - 1, 1), by_slot(kept)});
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
  shared_router_backward(layer);
  add_gradient(layer, scratch.partial, grads.dshared_logits, weights.shared_router);
}

}  // namespace

void experts_in(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const Arriving all = gather_all(layer, acts.n2, scratch.gathered);
  const Tensor routed = routed_of(layer, acts.n2, all, scratch.routed);
  on.local_matmul(forward_matmul(acts.routing.logits, {routed, {}}, weights.router));
  route_tokens(layer);
  share_routing(layer);
  const Rows slots = start(layer, dispatch_input(layer, routed, on.expert_parts()));
  const Tensor n2 = on.arrived(all);
  // While rows are on their way.
  if (acts.shared.up) on.local_matmul(forward_matmul(acts.shared.up, {n2, {}}, weights.shared_up));
  if (weights.shared_router.value) {
    on.local_matmul(forward_matmul(acts.shared.gate.logits, {n2, {}}, weights.shared_router));
    route_to_shared(layer);
  }
  multiply_arriving(layer, grouped_forward(layer, acts.up, scratch.in.held, weights.up), slots);
  activation_forward(layer);
}

Tensor experts_out(const Layer& layer) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  combine(layer, multiply_and_return(layer, grouped_forward(layer, scratch.out.held, acts.act, weights.down)));
  sum_over_ep(layer);
  if (!acts.shared.up) return on.arrived(sums_over_tp(layer));
  Matmul shared = forward_matmul(scratch.partial, {acts.shared.act, {}}, weights.shared_down);
  shared.accumulate = true;
  return on.arrived(on.matmul_reduce(shared, scratch.reduced));
}

Tensor experts_backward(const Layer& layer, const Tensor& dx, WeightGradients when, double loss_scale) {
  const auto& [on, weights, acts, positions, scratch] = layer;
  const LayerGrads& grads = acts.grads;
  const bool now = when == WeightGradients::now;
  const Arriving all_dout = gather_all(layer, dx, grads.dout);
  const Arriving n2 = now ? gather_all(layer, acts.n2, scratch.gathered) : Arriving{};
  const Rows gradient = start(layer, dispatch_gradient(layer, routed_of(layer, dx, all_dout, scratch.routed_dout)));
  const Tensor dout = on.arrived(all_dout);
  Input input = now ? input_again(layer, n2) : Input{};
  if (acts.shared.up) shared_activation_backward(layer, dout);  // while rows are on their way
  multiply_arriving(layer, grouped(layer, scratch.dact, scratch.out.held, weights.down.value), gradient);
  if (now) input.slots = start(layer, std::move(input.slots));
  on.compute.submit(SwigluBwd{grads.dup, scratch.dact, acts.up, {}, expert_weights(layer), scratch.dweights.held});
  const tensor::Event started = start_weights_back(layer);
  if (now) output_weight_gradients(layer, dout);  // before scratch.out is written again
  const Arriving back = multiply_and_return(layer, grouped(layer, scratch.out.held, grads.dup, weights.up.value));
  const Arriving dweights = weights_back(layer, started);
  if (now) expert_input_gradients(layer, input);
  router_backward(layer, on.arrived(dweights), loss_scale);
  if (weights.buffers.load && on.shape.drops()) count_kept(layer);
  combine(layer, back);
  add_gradient(layer, routed_sums(layer), grads.dlogits, weights.router);
  sum_over_ep(layer);
  if (acts.shared.up) shared_input_backward(layer);
  const Arriving dn2 = sums_over_tp(layer);
  if (now) {
    input_weight_gradients(layer, input);
  } else if (is_whole(layer)) {
    keep_gradient(layer, on.routed_share(grads.dout), on.routed_share(dx));
  } else {
    keep_gradient(layer, grads.dout, dout);
  }
  return on.arrived(dn2);
}

void experts_weight_gradients(const Layer& layer) {
  const LayerGrads& grads = layer.acts.grads;
  const Arriving n2 = gather_all(layer, layer.acts.n2, layer.scratch.gathered);
  const Tensor dout = routed_of(layer, grads.dout, {grads.dout, {}}, layer.scratch.routed_dout);
  const Rows gradient = start(layer, dispatch_gradient(layer, dout));
  Input input = input_again(layer, n2);
  input.slots = start(layer, std::move(input.slots));
  each_arriving(layer, gradient, [](ExpertRange) {});
  output_weight_gradients(layer, grads.dout);
  expert_input_gradients(layer, input);
  input_weight_gradients(layer, input);
}

}  // namespace ms::nn
