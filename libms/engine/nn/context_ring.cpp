// Attention over ranks of cp that pass keys and values around a ring. At step s of cp a rank has the block of the rank
// s before it, and attends to it while the next block arrives. Time running to the right, on every rank of three; a, b,
// c: the blocks, from the own one backwards; K: a block's keys and values, D: the sum of their gradients so far:
//
//   forward    next           send Ka    send Kb
//              previous       recv Kb    recv Kc
//              compute        a          b          c
//   backward   next           send Ka    send Da Kb    send Db    send Dc
//              previous       recv Kb    recv Kc       recv Db    recv Dc     recv Da
//              compute        a          b             c
//
// The sum of a block's gradients begins where its keys are, and follows them around, one step behind: it arrives while
// compute makes this rank's part of it, and is added to that part on the stream that sends it on. The last transfer,
// which brings it home, is the only one that no compute hides.
//
// Every message is on both ends behind those before it: Ka Da Kb Db .. Each needs a computation and messages before it
// only, so none waits for ever, though a send completes only when it is matched.
//
// A block has two pieces, and causal queries of a rank see as many pairs of any block as of the own one: both own
// pieces see the first piece of an earlier rank's, the second own piece both pieces of a later rank's. A window ends
// neither way around: the keys before a rank's second piece are those of the next rank, which come last. Pairs of
// pieces without a visible pair of tokens are not issued.
//
// Bits: each query sums the blocks in the order of the ring. Outputs and gradients stay in f32 until all are in them,
// and are rounded once.
#include <utility>

#include "nn/context.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

Heads keys_of(const Tensor& block) {
  const std::int64_t cols = block.cols / 2;
  return {{}, block.slice_cols(0, cols), block.slice_cols(cols, cols)};
}

// Passes the blocks of keys and values around.
class PassedKeys {
 public:
  PassedKeys(const TensorParallel& on, const ContextScratch& context, const Heads& own)
      : on_(on), blocks_(context.blocks), own_(own) {
    const Heads packed = keys_of(blocks_[0]);
    on_.compute.submit(Copy{packed.k, own.k});
    on_.compute.submit(Copy{packed.v, own.v});
  }

  // Returns the block of a step, which compute may read, and sends it on. Called for each step in turn, behind the ops
  // that read the block of the one before.
  Heads at_step(int step) {
    Stream &next = on_.cp_next->stream(), &previous = on_.cp_previous->stream();
    const Tensor &block = blocks_[static_cast<std::size_t>(step % 2)],
                 &other = blocks_[static_cast<std::size_t>((step + 1) % 2)];
    const Event read = on_.compute.record();
    if (step > 0) on_.compute.wait(arrived_);
    if (step + 1 < on_.shape.cp) {
      next.wait(step > 0 ? arrived_ : read);
      on_.cp_next->send(block);
      previous.wait(read);
      if (sent_) previous.wait(sent_);
      sent_ = next.record();
      on_.cp_previous->recv(other);
      arrived_ = previous.record();
    }
    return step > 0 ? keys_of(block) : own_;
  }

 private:
  const TensorParallel& on_;
  const std::array<Tensor, 2>& blocks_;
  Heads own_;
  Event arrived_, sent_;  // the next block; this one
};

// Tells whether causal attention, with the window, of some query of the op's sees some key.
bool sees(const auto& op) {
  return op.keys_first < op.first + op.queries() &&
         (op.window == 0 || op.first - op.window < op.keys_first + op.keys() - 1);
}

// Issues the op for each piece of the own queries and each piece of the block of a step. `gradients` receives those of
// the block.
template <class Attention>
void attend(const Layer& layer, const Attention& own, int step, const Heads& block, const Heads& gradients = {}) {
  constexpr bool kBackward = requires(Attention op) { op.dq; };
  const Shape& shape = layer.on.shape;
  const std::int64_t rows = shape.batch * shape.piece();
  const auto piece_of = [&](const Tensor& x, int k) { return x.slice_rows(k * rows, rows); };
  // Backwards, so that the first keys of a piece of queries are its own ones, which it sees.
  for (int k = shape.pieces(); k-- > 0;) {
    bool adds = false;
    for (int i = 0; i < shape.pieces(); ++i) {
      auto op = op_of_piece(shape, own, i);
      op.keys_first = shape.first_of_piece(k, (shape.cp_rank + shape.cp - step) % shape.cp);
      op.k = piece_of(block.k, k), op.v = piece_of(block.v, k);
      if (!sees(op)) continue;
      const bool has_keys = step > 0 || i != k;
      if constexpr (kBackward) {
        op.dk = piece_of(gradients.k, k), op.dv = piece_of(gradients.v, k);
        op.adds = std::exchange(adds, true), op.adds_queries = has_keys;
      } else {
        op.merges = has_keys;
      }
      layer.on.compute.submit(op);
    }
    if constexpr (kBackward) {
      if (adds) continue;
      for (const Tensor& x : {gradients.k, gradients.v}) layer.on.compute.submit(Fill{piece_of(x, k)});
    }
  }
}

}  // namespace

void pass_keys_forward(const Layer& layer, AttentionFwd op) {
  const TensorParallel& on = layer.on;
  const ContextScratch& context = layer.scratch.context;
  const Tensor o = op.o;
  if (context.sums) op.o = context.sums;
  PassedKeys keys(on, context, {{}, op.k, op.v});
  for (int step = 0; step < on.shape.cp; ++step) attend(layer, op, step, keys.at_step(step));
  if (context.sums) on.compute.submit(Copy{o, context.sums});
  on.compute.wait(on.cp_next->stream().record());  // the blocks may be overwritten
}

void pass_keys_backward(const Layer& layer, AttentionBwd op) {
  const TensorParallel& on = layer.on;
  const ContextScratch& context = layer.scratch.context;
  const Heads gradients{op.dq, op.dk, op.dv};
  Stream &compute = on.compute, &next = on.cp_next->stream(), &previous = on.cp_previous->stream();
  if (context.sums) op.dq = context.sums;
  PassedKeys keys(on, context, {{}, op.k, op.v});
  Event added;                // the last sum that arrived
  std::array<Event, 2> sent;  // of dblocks
  const auto receive = [&] {
    if (added) previous.wait(added);
    on.cp_previous->recv(context.dreceived);
    return previous.record();
  };
  for (int step = 0; step < on.shape.cp; ++step) {
    const auto at = static_cast<std::size_t>(step % 2);
    const Tensor& sum = context.dblocks[at];
    const Event received = step > 0 ? receive() : Event{};
    const Heads block = keys.at_step(step);
    if (sent[at]) compute.wait(sent[at]);
    attend(layer, op, step, block, keys_of(sum));
    next.wait(compute.record());
    if (received) {
      next.wait(received);
      next.submit(Add{.y = sum, .a = context.dreceived, .b = sum, .bias = {}});
      added = next.record();
    }
    on.cp_next->send(sum);
    sent[at] = next.record();
  }
  compute.wait(receive());
  const Heads home = keys_of(context.dreceived);
  compute.submit(Copy{gradients.k, home.k});
  compute.submit(Copy{gradients.v, home.v});
  if (context.sums) compute.submit(Copy{gradients.q, context.sums});
  compute.wait(next.record());
}

}  // namespace ms::nn
