#include "train/engine/executor.h"

#include <algorithm>
#include <utility>

#include "tensor/section.h"

namespace ms::train {

using sched::Action;
using sched::Row;
using tensor::Event;
using tensor::Stream;
using tensor::Tensor;

// Events that order the streams around a slot or a gradient buffer. An empty event is no constraint.
struct Executor::Slot {
  Event received;  // the input has arrived
  Event done;      // the last compute that reads or writes the slot
  Event sent;      // the output has left
};
struct Executor::Gradient {
  Event received, done, sent;
};
struct Executor::ChunkState {
  std::vector<Gradient> ring;
  std::vector<Event> complete;  // by span: the last that adds to its gradients
  bool has_rounded = false;     // the weights, as this schedule's microbatches have them
  // The schedule has run a backward, or the first half of one; and the second half of one.
  bool has_gradients = false, has_weight_gradients = false;
  std::size_t next_received = 0, next_computed = 0, next_sent = 0;
};

namespace {

void wait_if(Stream& stream, const Event& event) {
  if (event) stream.wait(event);
}

template <class T>
T& at_index(std::vector<T>& items, int index) {
  return items[static_cast<std::size_t>(index)];
}

trace::Context context_of(const Row& row, Executor::Mode mode) {
  trace::Context context{.chunk = row.chunk, .microbatch = row.microbatch};
  if (mode != Executor::Mode::train) {
    context.purpose = trace::Purpose::evaluation;
  } else if (row.action == Action::recv_forward || row.action == Action::forward ||
             row.action == Action::send_forward) {
    context.purpose = trace::Purpose::forward;
  } else {
    context.purpose = trace::Purpose::backward;
  }
  return context;
}

trace::Kind kind_of(Action action) {
  return action == Action::forward          ? trace::Kind::forward
         : action == Action::backward       ? trace::Kind::backward
         : action == Action::backward_input ? trace::Kind::backward_input
                                            : trace::Kind::backward_weight;
}

}  // namespace

Executor::Executor(const Plan& plan, const mesh::Coord& at, const nn::Shape& shape, RankTensors& tensors,
                   Stream& compute, const RankGroups& groups, optim::ShardedOptimizer& optimizer)
    : plan_(plan),
      at_(at),
      shape_(shape),
      tensors_(tensors),
      compute_(compute),
      groups_(groups),
      optimizer_(optimizer) {
  if (groups.ring_out)
    ring_.emplace(nn::Ring{*groups.ring_out, *groups.ring_in, tensors.ring_received, at.tp, plan.mesh.tp});
  for (int c = 0; c < plan.chunks; ++c) {
    const ChunkTensors& chunk = at_index(tensors_.chunks, c);
    std::vector<nn::SpanTensors> spans;
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      spans.push_back({chunk.specs[i], chunk.spans[i].values, chunk.spans[i].grads});
    }
    model_.emplace_back(shape_, plan.part(at_.pp, c), spans, tensors_.rotary, chunk.rounded, chunk.caches,
                        chunk.routers);
    ChunkState state;
    state.ring.resize(chunk.gradients.size());
    state.complete.resize(chunk.specs.size());
    state_.push_back(std::move(state));
  }
  slots_.resize(tensors_.slots.size());
  if (plan.settings.optim.zero == 3 && !plan.inference)
    window_.emplace(plan, at.pp, tensors_.chunks, optimizer_, compute_);
}

Executor::~Executor() = default;

const std::vector<Row>& Executor::rows(const sched::Schedule& schedule) const {
  return schedule.rows[static_cast<std::size_t>(at_.pp)];
}

void Executor::begin() {
  for (ChunkState& state : state_) state.has_rounded = state.has_gradients = state.has_weight_gradients = false;
}

void Executor::run(const sched::Schedule& schedule, Mode mode, double loss_scale) {
  begin();
  std::span<const Row> left = rows(schedule);
  if (window_) prefetch_pass(left, mode);
  for (; !left.empty(); left = left.subspan(1)) {
    obey(left.front(), mode, loss_scale);
    if (window_ && left.front().is_compute()) prefetch_pass(left.subspan(1), mode);
  }
}

ParameterWindow::Pass Executor::pass_of(const Row& row, Mode mode) const {
  const bool has_head = mode == Mode::evaluate || mode == Mode::logits;
  return {.chunk = row.chunk, .backward = row.action != Action::forward, .head = has_head};
}

void Executor::prefetch_pass(std::span<const Row> rows, Mode mode) {
  const auto next = std::ranges::find_if(rows, &Row::is_compute);
  if (next != rows.end()) window_->prefetch(pass_of(*next, mode));
}

void Executor::replay(const sched::Schedule& schedule, double loss_scale, const BeforeBackward& before_backward,
                      const AfterBackward& after_backward) {
  begin();
  for (const Row& row : rows(schedule)) {
    if (row.action == Action::reduce_grads) continue;
    const bool is_backward = row.action == Action::backward;
    if (is_backward) {
      before_backward(at_index(tensors_.slots, row.slot));
      for (std::size_t i = 0; i < at_index(state_, row.chunk).complete.size(); ++i)
        optimizer_.clear_gradients(first_span(row.chunk) + i);
    }
    obey(row, Mode::replay, loss_scale);
    if (is_backward) after_backward(at_index(tensors_.chunks, row.chunk));
  }
}

void Executor::prefetch(const sched::Schedule& schedule) {
  if (!plan_.settings.overlap.dp) return;
  if (window_) return prefetch_pass(rows(schedule), Mode::train);
  for (const Row& row : rows(schedule)) {
    if (row.action != Action::gather_params) return;
    gather(row.chunk);
  }
}

comm::Communicator& Executor::channel(const Row& row) const {
  comm::Communicator* channel = groups_.channels[static_cast<std::size_t>(row.channel)].get();
  MS_ASSERT(channel != nullptr, "row {} of pp rank {} uses a channel that is not there", sched::cell(row), at_.pp);
  return *channel;
}

nn::TensorParallel Executor::tensor_parallel() const {
  return {.compute = compute_,
          .tp = *groups_.tp,
          .shape = shape_,
          .overlap = plan_.settings.overlap.tp,
          .ring = ring_ ? &*ring_ : nullptr,
          .fp8 = shape_.fp8,
          .cp = groups_.cp.get(),
          .cp_next = groups_.cp_ring_out.get(),
          .cp_previous = groups_.cp_ring_in.get(),
          .ep = groups_.ep.get(),
          .overlap_ep = plan_.settings.overlap.ep};
}

std::size_t Executor::first_span(int chunk) const {
  std::size_t first = 0;
  for (int c = 0; c < chunk; ++c) first += at_index(tensors_.chunks, c).specs.size();
  return first;
}

void Executor::complete(int chunk, std::int64_t place) {
  const std::vector<nn::SpanSpec>& spans = at_index(tensors_.chunks, chunk).specs;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].place == place) at_index(state_, chunk).complete[i] = compute_.record();
  }
}

// The loss counts once: on tp rank 0.
Tensor Executor::loss_target() const { return at_.tp == 0 ? tensors_.scalars.loss() : tensors_.ignored_loss; }

void Executor::obey(const Row& row, Mode mode, double loss_scale) {
  const trace::Scope scope(compute_.device().recorder(), context_of(row, mode));
  switch (row.action) {
    case Action::recv_forward:
    case Action::send_forward:
    case Action::recv_backward:
    case Action::send_backward: return transfer(row);
    case Action::forward: return forward(row, mode, loss_scale);
    case Action::backward:
    case Action::backward_input:
    case Action::backward_weight: return backward(row, mode, loss_scale);
    case Action::gather_params: return window_ ? void() : gather(row.chunk);
    case Action::reduce_grads: return reduce(row.chunk, plan_.settings.optim.zero >= 2);
  }
}

void Executor::transfer(const Row& row) {
  ChunkState& state = at_index(state_, row.chunk);
  ChunkTensors& tensors = at_index(tensors_.chunks, row.chunk);
  Slot& slot = at_index(slots_, row.slot);
  const nn::ChunkSlot& acts = at_index(tensors_.slots, row.slot);
  comm::Communicator& peer = channel(row);
  Stream& stream = peer.stream();
  const bool receives = row.action == Action::recv_forward || row.action == Action::recv_backward;
  if (!plan_.settings.overlap.pp && receives) stream.wait(compute_.record());
  const auto done = [&] {
    const Event event = stream.record();
    if (!plan_.settings.overlap.pp) compute_.wait(event);
    return event;
  };
  if (row.action == Action::recv_forward) {
    wait_if(stream, slot.done);
    peer.recv(acts.in());
    slot.received = done();
  } else if (row.action == Action::send_forward) {
    stream.wait(slot.done);
    peer.send(acts.out);
    slot.sent = done();
  } else if (row.action == Action::recv_backward) {
    const std::size_t i = state.next_received++ % state.ring.size();
    Gradient& gradient = state.ring[i];
    wait_if(stream, gradient.done);
    wait_if(stream, gradient.sent);
    peer.recv(tensors.gradients[i]);
    gradient.received = done();
  } else {
    const std::size_t i = state.next_sent++ % state.ring.size();
    Gradient& gradient = state.ring[i];
    stream.wait(gradient.done);
    peer.send(tensors.gradients[i]);
    gradient.sent = done();
  }
}

void Executor::forward(const Row& row, Mode mode, double loss_scale) {
  ChunkState& state = at_index(state_, row.chunk);
  Slot& slot = at_index(slots_, row.slot);
  nn::ChunkSlot& acts = at_index(tensors_.slots, row.slot);
  const nn::Chunk& chunk = at_index(model_, row.chunk);
  const nn::Microbatch& input = at_index(tensors_.input, row.microbatch);
  const nn::TensorParallel on = tensor_parallel();
  const std::vector<nn::SpanSpec>& spans = at_index(tensors_.chunks, row.chunk).specs;
  const std::size_t first = first_span(row.chunk);
  const std::int64_t layers = chunk.part().layer_end - chunk.part().layer_begin;
  const ParameterWindow::Pass pass = pass_of(row, mode);
  const auto before = [&](std::int64_t place) {
    if (window_) return window_->advance(place);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (spans[i].place == place) optimizer_.before_use(first + i);
    }
    if (!state.has_rounded) chunk.round_weights(compute_, place);
  };
  if (!chunk.part().first) compute_.wait(slot.received);
  wait_if(compute_, slot.sent);  // the output's memory
  {
    const tensor::Section section(compute_, trace::Kind::forward);
    if (window_) window_->begin(pass);
    chunk.forward(on, acts, input, tensors_.scratch, before);
    before(window_ ? layers + 1 : layers);  // the head, now or in the backward
    if (chunk.part().last && mode == Mode::evaluate) {
      chunk.head_loss(on, acts, input, tensors_.scratch, tensors_.head, loss_target(), loss_scale);
      if (tensors_.token_losses) {
        const Tensor& loss = tensors_.head.loss;
        compute_.submit(tensor::Copy{tensors_.token_losses.slice_cols(row.microbatch * loss.cols, loss.cols), loss});
      }
    } else if (chunk.part().last && mode == Mode::logits) {
      chunk.head_logits(on, acts, tensors_.scratch, tensors_.head);
    }
    if (window_) window_->end();
  }
  state.has_rounded = true;
  slot.done = compute_.record();
}

// Second halves run in the order of the first ones: a whole backward finds both as far.
bool Executor::sets_gradients(const Row& row) {
  ChunkState& state = at_index(state_, row.chunk);
  bool& has = row.action == Action::backward_weight ? state.has_weight_gradients : state.has_gradients;
  const bool is_first = !std::exchange(has, true);
  if (row.action == Action::backward) state.has_weight_gradients = true;
  return plan_.sets_gradients() && (is_first || plan_.settings.optim.zero >= 2);
}

// All of it, or one half. The first half is done with the gradient buffer, the second with the slot.
void Executor::backward(const Row& row, Mode mode, double loss_scale) {
  ChunkState& state = at_index(state_, row.chunk);
  ChunkTensors& tensors = at_index(tensors_.chunks, row.chunk);
  const nn::Chunk& chunk = at_index(model_, row.chunk);
  nn::ChunkSlot& acts = at_index(tensors_.slots, row.slot);
  const nn::Microbatch& input = at_index(tensors_.input, row.microbatch);
  nn::TensorParallel on = tensor_parallel();
  on.sets_gradients = sets_gradients(row);
  const std::int64_t layers = chunk.part().layer_end - chunk.part().layer_begin;
  const auto after = [&](std::int64_t place) {
    complete(row.chunk, place);
    if (!window_) return;
    window_->advance(layers - place + 1);
    reduce_place(row.chunk, place);
  };
  if (window_) {
    window_->begin(pass_of(row, mode));
    window_->advance(0);
  } else {
    optimizer_.before_backward();
  }
  if (row.action == Action::backward_weight) {
    const tensor::Section section(compute_, trace::Kind::backward_weight);
    chunk.backward_weight(on, acts, tensors_.scratch, after);
  } else {
    const std::size_t i = state.next_computed++ % state.ring.size();
    Gradient& gradient = state.ring[i];
    if (chunk.part().last) {
      wait_if(compute_, gradient.sent);
    } else {
      compute_.wait(gradient.received);
    }
    const Tensor& dx = tensors.gradients[i];
    const tensor::Section section(compute_, kind_of(row.action));
    if (row.action == Action::backward) {
      chunk.backward(on, acts, input, tensors_.scratch, tensors_.head, dx, loss_target(), loss_scale, after);
    } else {
      chunk.backward_input(on, acts, input, tensors_.scratch, tensors_.head, dx, loss_target(), loss_scale, after);
    }
    gradient.done = compute_.record();
  }
  if (row.action != Action::backward_input) at_index(slots_, row.slot).done = compute_.record();
  // A half too: the next row may add another microbatch's gradients, or another chunk's, to the same buffer.
  if (plan_.settings.optim.zero == 2 && mode == Mode::train) reduce(row.chunk, false);
}

void Executor::gather(int chunk) {
  const trace::Scope scope(compute_.device().recorder(), {.purpose = trace::Purpose::params, .chunk = chunk});
  const std::size_t spans = at_index(state_, chunk).complete.size();
  for (std::size_t i = 0; i < spans; ++i) optimizer_.gather(first_span(chunk) + i);
  if (!plan_.settings.overlap.dp) optimizer_.settle();
}

void Executor::reduce_place(int chunk, std::int64_t place) {
  const trace::Scope scope(compute_.device().recorder(), {.purpose = trace::Purpose::grads, .chunk = chunk});
  const std::vector<nn::SpanSpec>& spans = at_index(tensors_.chunks, chunk).specs;
  for (std::size_t i = spans.size(); i-- > 0;) {
    if (spans[i].place == place) optimizer_.reduce(first_span(chunk) + i, at_index(state_, chunk).complete[i]);
  }
  if (!plan_.settings.overlap.dp) optimizer_.settle();
}

// In the order in which the backward completes them. Without overlap no sooner than all before this row is done.
// `shards`: of zero 2 and 3, whose reductions within shard groups were after every microbatch.
void Executor::reduce(int chunk, bool shards) {
  const trace::Scope scope(compute_.device().recorder(), {.purpose = trace::Purpose::grads, .chunk = chunk});
  std::vector<Event>& complete = at_index(state_, chunk).complete;
  if (!plan_.settings.overlap.dp) complete.assign(complete.size(), compute_.record());
  for (std::size_t i = complete.size(); i-- > 0;) {
    const std::size_t span = first_span(chunk) + i;
    shards ? optimizer_.reduce_shard(span) : optimizer_.reduce(span, complete[i]);
  }
  if (!plan_.settings.overlap.dp) optimizer_.settle();
}

}  // namespace ms::train
