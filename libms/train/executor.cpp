#include "train/executor.h"

namespace ms::train {

using sched::Row;
using sched::What;
using tensor::Event;
using tensor::Stream;
using tensor::Tensor;

// What orders the streams around a slot and around a gradient buffer. An event that does not exist is no constraint.
struct Executor::Slot {
  Event received;  // the input has arrived
  Event done;      // the last compute that reads or writes the slot
  Event sent;      // the output has left
};
struct Executor::Gradient {
  Event received, done, sent;
};
struct Executor::ChunkState {
  std::vector<Slot> slots;
  std::vector<Gradient> ring;
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

}  // namespace

Executor::Executor(const Plan& plan, const mesh::Coord& at, RankTensors& tensors, Stream& compute,
                   const RowGroups& groups, optim::ShardedOptimizer& optimizer)
    : plan_(plan),
      at_(at),
      shape_(plan.shape(at.tp)),
      tensors_(tensors),
      compute_(compute),
      groups_(groups),
      optimizer_(optimizer) {
  for (int c = 0; c < plan.chunks; ++c) {
    const ChunkTensors& chunk = at_index(tensors_.chunks, c);
    std::vector<nn::SpanTensors> spans;
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      spans.push_back({chunk.specs[i], chunk.spans[i].values, chunk.spans[i].grads});
    }
    model_.emplace_back(shape_, plan.part(at_.pp, c), spans, tensors_.rotary);
    ChunkState state;
    state.slots.resize(chunk.slots.size());
    state.ring.resize(chunk.gradients.size());
    state_.push_back(std::move(state));
  }
}

Executor::~Executor() = default;

const std::vector<Row>& Executor::rows(const sched::Schedule& schedule) const {
  return schedule.rows[static_cast<std::size_t>(at_.pp)];
}

void Executor::run(const sched::Schedule& schedule, Mode mode, double loss_scale) {
  for (const Row& row : rows(schedule)) obey(row, mode, loss_scale);
}

void Executor::prefetch(const sched::Schedule& schedule) {
  if (!plan_.settings.overlap.dp) return;
  for (const Row& row : rows(schedule)) {
    if (row.what != What::gather_params) return;
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
          .tp = groups_.tp,
          .shape = shape_,
          .overlap = plan_.settings.overlap.tp,
          .ring = groups_.ring ? &*groups_.ring : nullptr};
}

template <class F>
void Executor::for_spans(int chunk, F&& function) const {
  std::size_t first = 0;
  for (int c = 0; c < chunk; ++c) first += at_index(tensors_.chunks, c).specs.size();
  for (std::size_t i = 0; i < at_index(tensors_.chunks, chunk).specs.size(); ++i) function(first + i);
}

// The loss counts once: on tp rank 0.
Tensor Executor::loss_target() const { return at_.tp == 0 ? tensors_.scalars.loss() : tensors_.ignored_loss; }

void Executor::obey(const Row& row, Mode mode, double loss_scale) {
  switch (row.what) {
    case What::recv_forward:
    case What::send_forward:
    case What::recv_backward:
    case What::send_backward:
      return transfer(row);
    case What::forward:
      return forward(row, mode, loss_scale);
    case What::backward:
    case What::backward_input:
    case What::backward_weight:
      return backward(row, loss_scale);
    case What::gather_params:
      return gather(row.chunk);
    case What::reduce_grads:
      if (plan_.settings.optim.zero != 2) reduce(row.chunk);  // zero 2: done after every microbatch
      return;
  }
}

void Executor::transfer(const Row& row) {
  ChunkState& state = at_index(state_, row.chunk);
  ChunkTensors& tensors = at_index(tensors_.chunks, row.chunk);
  Slot& slot = at_index(state.slots, row.slot);
  const nn::ChunkSlot& acts = at_index(tensors.slots, row.slot);
  comm::Communicator& peer = channel(row);
  Stream& stream = peer.stream();
  const bool receives = row.what == What::recv_forward || row.what == What::recv_backward;
  if (!plan_.settings.overlap.pp && receives) stream.wait(compute_.record());
  const auto done = [&] {
    const Event event = stream.record();
    if (!plan_.settings.overlap.pp) compute_.wait(event);
    return event;
  };
  if (row.what == What::recv_forward) {
    wait_if(stream, slot.done);
    peer.recv(acts.in());
    slot.received = done();
  } else if (row.what == What::send_forward) {
    stream.wait(slot.done);
    peer.send(acts.out);
    slot.sent = done();
  } else if (row.what == What::recv_backward) {
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
  Slot& slot = at_index(at_index(state_, row.chunk).slots, row.slot);
  nn::ChunkSlot& acts = at_index(at_index(tensors_.chunks, row.chunk).slots, row.slot);
  const nn::Chunk& chunk = at_index(model_, row.chunk);
  const nn::Microbatch& input = at_index(tensors_.input, row.microbatch);
  const nn::TensorParallel on = tensor_parallel();
  for_spans(row.chunk, [this](std::size_t span) { optimizer_.before_use(span); });
  if (!chunk.part().first) compute_.wait(slot.received);
  wait_if(compute_, slot.sent);  // the output's memory
  chunk.forward(on, acts, input, tensors_.scratch);
  if (chunk.part().last && mode == Mode::evaluate) {
    chunk.head_loss(on, acts, input, tensors_.scratch, tensors_.head, loss_target(), loss_scale);
  } else if (chunk.part().last && mode == Mode::logits) {
    chunk.head_logits(on, acts, tensors_.scratch, tensors_.head);
  }
  slot.done = compute_.record();
}

// All of it, or one half. The first half is done with the gradient buffer, the second with the slot.
void Executor::backward(const Row& row, double loss_scale) {
  ChunkState& state = at_index(state_, row.chunk);
  ChunkTensors& tensors = at_index(tensors_.chunks, row.chunk);
  const nn::Chunk& chunk = at_index(model_, row.chunk);
  nn::ChunkSlot& acts = at_index(tensors.slots, row.slot);
  const nn::Microbatch& input = at_index(tensors_.input, row.microbatch);
  const nn::TensorParallel on = tensor_parallel();
  for_spans(row.chunk, [this](std::size_t span) { optimizer_.before_backward(span); });
  if (row.what == What::backward_weight) {
    chunk.backward_weight(on, acts, tensors_.scratch);
  } else {
    const std::size_t i = state.next_computed++ % state.ring.size();
    Gradient& gradient = state.ring[i];
    if (chunk.part().last) {
      wait_if(compute_, gradient.sent);
    } else {
      compute_.wait(gradient.received);
    }
    const auto half = row.what == What::backward ? &nn::Chunk::backward : &nn::Chunk::backward_input;
    (chunk.*half)(on, acts, input, tensors_.scratch, tensors_.head, tensors.gradients[i], loss_target(), loss_scale);
    gradient.done = compute_.record();
  }
  if (row.what != What::backward_input) at_index(state.slots, row.slot).done = compute_.record();
  // A half too: the next row may add another microbatch's gradients, or another chunk's, to the same buffer.
  if (plan_.settings.optim.zero == 2) reduce(row.chunk);
}

void Executor::gather(int chunk) {
  for_spans(chunk, [this](std::size_t span) { optimizer_.gather(span); });
  if (!plan_.settings.overlap.dp) optimizer_.settle();
}

void Executor::reduce(int chunk) {
  for_spans(chunk, [this](std::size_t span) { optimizer_.reduce(span); });
  if (!plan_.settings.overlap.dp) optimizer_.settle();
}

}  // namespace ms::train
