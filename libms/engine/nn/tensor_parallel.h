// Tensor and sequence parallelism: the collectives over tp around a layer's matmuls, on the group's own streams, and
// how much of them overlaps compute. Layers say what they need and when; whether a collective is split and overlapped
// is decided here alone.
//
// Legend as in layer.h. Without sequence parallelism Ts = T: a gather is a no-op, and a reduction is an all-reduce.
//
// Bits: overlap changes the bits of matmul_reduce() under sequence parallelism, which then sums over tp in ring order
// (ring.h, which also tells how bf16 is rounded), and with fp8 also those of gather_matmul() there. Everything else
// keeps its bits, given that rows of a matmul stand alone (tensor/cpu_matmul.h).
#pragma once

#include "comm/communicator.h"
#include "nn/ring.h"
#include "nn/shape.h"
#include "tensor/stream.h"

namespace ms::nn {

// A tensor that is still being produced: compute may use it after TensorParallel::arrived().
struct Arriving {
  Tensor tensor;
  tensor::Event event;  // absent if the tensor is ready
};

// The places that rows of experts' slots pass: those of the tokens that this rank routes; those of its experts; and,
// where ranks of tp gather rows (Shape::gathered_shares), those of its experts for its share of the tokens, before they
// are gathered, and the parts of every rank's sums of these.
struct SlotRows {
  Tensor own, held, received, parts;
  // Returns them with a number in each row, where they are one row of numbers.
  SlotRows by_slot() const;
};

struct TensorParallel {
  tensor::Stream& compute;
  comm::Communicator& tp;
  Shape shape;
  // Overlaps collectives with compute. If off, compute waits for each collective where it is issued.
  bool overlap = false;
  const Ring* ring = nullptr;  // set if ring_used()
  // Rounds the operands of matmuls to fp8: layers may want this, the head does not. A ring multiplies the blocks of an
  // operand as they arrive, each with its own scale.
  bool fp8 = false;
  // The backward sets the gradients of matmuls' weights and of biases, and does not add to them: the first one of those
  // that are summed there. Norms and tables always add.
  bool sets_gradients = false;
  // The ranks that share sequences: as a group, or if they pass keys and values, the channels to the next one and from
  // the previous one, each on a stream of its own. Null if shape.cp is 1.
  comm::Communicator *cp = nullptr, *cp_next = nullptr, *cp_previous = nullptr;
  comm::Communicator* ep = nullptr;  // the ranks that share the experts; null if shape.ep is 1
  // Overlaps the rows that ranks of ep exchange with compute, some experts' after others'; else compute waits for each
  // exchange where it is issued.
  bool overlap_ep = false;

  // All of these are collective over the tp group and only issue work. The memory that they write, named `into`,
  // `partial` or `reduced`, or c of a matmul, must not be reused by the caller before the result has been used.

  // All-gathers x[Ts,n] of every rank into `into`[T,n]. Returns x itself if there is nothing to gather.
  Arriving gather(const Tensor& x, const Tensor& into) const;
  // Returns how matmuls round their operands if the first operand is an activation, or the gradient of one.
  tensor::Operands operands(bool is_gradient) const {
    if (!fp8) return tensor::Operands::as_given;
    return is_gradient ? tensor::Operands::fp8_gradient : tensor::Operands::fp8;
  }

  // Return `amax` if the op that makes the first operand of a matmul leaves the operand's amax there; otherwise an op
  // of its own computes it, which is always so for an operand that is gathered.
  Tensor fused_amax(const Tensor& amax) const { return shape.model->fused ? amax : Tensor{}; }
  Tensor fused_amax_of_gathered(const Tensor& amax) const { return scatters() ? Tensor{} : fused_amax(amax); }

  // Reduces partial sums [T,n] over tp to [Ts,n]: in place, or into `reduced` under sequence parallelism.
  Arriving reduce(const Tensor& partial, const Tensor& reduced) const;
  // Issues a matmul without communication. If matmul.a_amax is set, it first receives the amax of matmul.a, unless
  // `has_amax`, and matmul.a_rounded, if set, that operand rounded, for this matmul and others; `sums`, if set, then
  // are those of its rows, added or set as gradients are. The next two functions do so too.
  void local_matmul(tensor::Matmul matmul, bool has_amax = false, const Tensor& sums = {}) const;
  // Issues a matmul whose a is gather(x)[T,K]: the forward of a column-parallel matmul, b transposed, or the input
  // gradient of a row-parallel one, where x is a gradient. Returns gather(x). Compute may use it and the result at
  // once.
  Tensor gather_matmul(tensor::Matmul matmul, const Tensor& x, const Tensor& into, bool has_amax = false,
                       const Tensor& sums = {}) const;
  // Issues reduce(matmul) with a[T,K]: the forward of a row-parallel matmul, b transposed, or the input gradient of a
  // column-parallel one, where a is a gradient. matmul.c is the partial sum; if the matmul accumulates, an earlier one
  // shares the reduction.
  Arriving matmul_reduce(tensor::Matmul matmul, const Tensor& reduced, bool has_amax = false,
                         const Tensor& sums = {}) const;
  // All-gathers x[T,n] of every ep rank into `into`[ep T,n], by rank. Returns x itself without ep, and where its ranks
  // exchange slots.
  Arriving gather_routed(const Tensor& x, const Tensor& into) const;
  // Reduces partial sums `routed`[ep T,n] over ep to `own`[T,n]. Returns `routed` where nothing was gathered.
  Arriving reduce_routed(const Tensor& routed, const Tensor& own) const;
  // Where ep's ranks exchange slots: all-gathers the offsets[1,n] of every one into `all`[ep,n], and of the ranks of tp
  // that gather rows into [tp ep,n], by which the rows of slots move from their owners to the experts' holders,
  // rows.own to rows.held, after `ready`, an event of compute.
  void share_offsets(const Tensor& offsets, const Tensor& all) const;
  Arriving dispatch_rows(const SlotRows& rows, const Tensor& all_offsets, const tensor::Event& ready,
                         tensor::ExpertRange range = {}) const;
  // And back, sums over tp of what their experts made of them: what start_return() returns goes to finish_return().
  tensor::Event start_return(const SlotRows& rows, const Tensor& all_offsets, tensor::ExpertRange range = {}) const;
  Arriving finish_return(const SlotRows& rows, const Tensor& all_offsets, tensor::Event started,
                         tensor::ExpertRange range = {}) const;
  // Returns this rank's share, x[T / tp,n], of the tokens of x[T,n] that ranks of tp share out, or x[Ts,n] itself.
  Tensor routed_share(const Tensor& x) const;
  // All-gathers these shares of all ranks in place.
  Arriving gather_shares(const Tensor& x) const;
  // Returns the parts of the rank's experts whose rows are exchanged one after the other.
  std::vector<tensor::ExpertRange> expert_parts() const;
  // Makes compute wait for the tensor and returns it.
  Tensor arrived(const Arriving& arriving) const;
  // All-gathers small[1,n] of all tp ranks into all[tp,n].
  void gather_small(const Tensor& small, const Tensor& all) const;

  static bool ring_used(const Shape& shape, bool overlap) { return overlap && shape.sequence_parallel && shape.tp > 1; }

 private:
  void round_operand(const tensor::Matmul& matmul, bool has_amax, const Tensor& sums) const;
  bool scatters() const { return shape.sequence_parallel && shape.tp > 1; }
  Arriving issued(const Tensor& result) const;
  Arriving matmul_all_reduce(const tensor::Matmul& matmul) const;
  bool gathers_rows() const { return shape.gathered_shares() > 1; }
  Tensor own_offsets(const Tensor& all_offsets) const;
  void move_over_tp(const SlotRows& rows, const Tensor& all_offsets, bool goes_back, tensor::ExpertRange range) const;
  Arriving moved(const Tensor& result, const comm::Communicator& group) const;
};

}  // namespace ms::nn
