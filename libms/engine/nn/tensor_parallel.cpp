#include "nn/tensor_parallel.h"

#include "tensor/matmul_blocks.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

// Returns `result`, which everything issued to the tp stream so far produces.
Arriving TensorParallel::issued(const Tensor& result) const {
  const Event event = tp.stream().record();
  if (overlap) return {result, event};
  compute.wait(event);
  return {result, {}};
}

Arriving TensorParallel::gather(const Tensor& x, const Tensor& into) const {
  if (!scatters()) return {x, {}};
  tp.stream().wait(compute.record());
  tp.all_gather(into, x);
  return issued(into);
}

Arriving TensorParallel::reduce(const Tensor& partial, const Tensor& reduced) const {
  if (shape.tp == 1) return {partial, {}};
  tp.stream().wait(compute.record());
  if (!scatters()) {
    tp.all_reduce(partial);
    return issued(partial);
  }
  tp.reduce_scatter(reduced, partial);
  return issued(reduced);
}

void TensorParallel::round_operand(const Matmul& matmul, bool has_amax, const Tensor& sums) const {
  MS_ASSERT(!sums || matmul.a_rounded, "sums of an operand that is not kept rounded");
  if (matmul.a_rounded) {
    compute.submit(RoundToFp8{matmul.a_rounded, matmul.a_amax, matmul.a, sums,
                              matmul.operands == Operands::fp8_gradient, has_amax, !sets_gradients});
  } else if (matmul.a_amax && !has_amax) {
    compute.submit(Amax{matmul.a_amax.slice_cols(0, 1), matmul.a});
  }
}

void TensorParallel::local_matmul(Matmul matmul, bool has_amax, const Tensor& sums) const {
  matmul.operands = operands(!matmul.transpose_b);
  round_operand(matmul, has_amax, sums);
  compute.submit(matmul);
}

Tensor TensorParallel::gather_matmul(Matmul matmul, const Tensor& x, const Tensor& into, bool has_amax,
                                     const Tensor& sums) const {
  if (ring_used(shape, overlap)) {
    matmul.a = into;
    matmul.operands = operands(!matmul.transpose_b);
    Matmul blockwise = matmul;
    blockwise.a_amax = blockwise.a_rounded = {};
    ring->gather_matmul(compute, blockwise, x);
    round_operand(matmul, has_amax, sums);
    return into;
  }
  matmul.a = arrived(gather(x, into));
  local_matmul(matmul, has_amax, sums);
  return matmul.a;
}

Arriving TensorParallel::matmul_reduce(Matmul matmul, const Tensor& reduced, bool has_amax, const Tensor& sums) const {
  matmul.operands = operands(!matmul.transpose_b);
  round_operand(matmul, has_amax, sums);
  if (ring_used(shape, overlap)) return {reduced, ring->matmul_reduce(compute, matmul, reduced)};
  if (overlap && shape.tp > 1) return matmul_all_reduce(matmul);
  compute.submit(matmul);
  return reduce(matmul.c, reduced);
}

// All-reduces each chunk while the next is multiplied. An element's sum is the same in a chunk as in the whole.
Arriving TensorParallel::matmul_all_reduce(const Matmul& matmul) const {
  // Only the last chunk's all-reduce is exposed after the matmul. More chunks expose less, but small matmuls are
  // slower.
  constexpr std::int64_t kChunks = 4;
  for (std::int64_t i = 0; i < kChunks; ++i) {
    const std::int64_t begin = matmul.c.rows * i / kChunks, rows = matmul.c.rows * (i + 1) / kChunks - begin;
    if (rows == 0) continue;
    const Matmul chunk = matmul_block(matmul, begin, 0, {rows, matmul.c.cols});
    compute.submit(chunk);
    reduce(chunk.c, {});
  }
  return issued(matmul.c);
}

Arriving TensorParallel::gather_routed(const Tensor& x, const Tensor& into) const {
  if (shape.routed_ranks() == 1) return {x, {}};
  ep->stream().wait(compute.record());
  ep->all_gather(into, x);
  return {into, ep->stream().record()};
}

Arriving TensorParallel::reduce_routed(const Tensor& routed, const Tensor& own) const {
  if (shape.routed_ranks() == 1) return {routed, {}};
  ep->stream().wait(compute.record());
  ep->reduce_scatter(own, routed);
  return {own, ep->stream().record()};
}

SlotRows SlotRows::by_slot() const {
  SlotRows rows = *this;
  for (Tensor* x : {&rows.own, &rows.held, &rows.received, &rows.parts})
    if (*x) *x = x->reshape(x->numel(), 1);
  return rows;
}

// The offsets of the ranks of ep that this one exchanges rows with.
Tensor TensorParallel::own_offsets(const Tensor& all_offsets) const {
  return gathers_rows() ? all_offsets.slice_rows(std::int64_t{shape.tp_rank} * shape.ep, shape.ep) : all_offsets;
}

void TensorParallel::share_offsets(const Tensor& offsets, const Tensor& all) const {
  ep->stream().wait(compute.record());
  ep->all_gather(own_offsets(all), offsets);
  if (!gathers_rows()) return ep->stream().copy_to_host(all);
  tp.stream().wait(ep->stream().record());
  tp.all_gather(all, own_offsets(all));
  tp.stream().copy_to_host(all);
}

void TensorParallel::move_over_tp(const SlotRows& rows, const Tensor& all_offsets, bool goes_back,
                                  tensor::ExpertRange range) const {
  tp.gather_rows(goes_back ? rows.parts : rows.held, goes_back ? rows.held : rows.received,
                 {.offsets = all_offsets,
                  .holder = shape.ep_rank,
                  .even_rows = shape.even_rows(),
                  .goes_back = goes_back,
                  .range = range});
}

Arriving TensorParallel::moved(const Tensor& result, const comm::Communicator& group) const {
  const Arriving arriving{result, group.stream().record()};
  if (!overlap_ep) arrived(arriving);
  return arriving;
}

Arriving TensorParallel::dispatch_rows(const SlotRows& rows, const Tensor& all_offsets, const Event& ready,
                                       tensor::ExpertRange range) const {
  const bool gathers = gathers_rows();
  ep->stream().wait(ready);
  ep->all_to_all(gathers ? rows.received : rows.held, rows.own, own_offsets(all_offsets), false, range);
  if (!gathers) return moved(rows.held, *ep);
  tp.stream().wait(ep->stream().record());
  move_over_tp(rows, all_offsets, false, range);
  return moved(rows.held, tp);
}

Event TensorParallel::start_return(const SlotRows& rows, const Tensor& all_offsets, tensor::ExpertRange range) const {
  if (!gathers_rows()) return compute.record();
  tp.stream().wait(compute.record());
  move_over_tp(rows, all_offsets, true, range);
  return tp.stream().record();
}

Arriving TensorParallel::finish_return(const SlotRows& rows, const Tensor& all_offsets, Event started,
                                       tensor::ExpertRange range) const {
  const bool gathered = gathers_rows();
  if (gathered) {
    compute.wait(started);
    compute.submit(ExpertSum{.y = rows.received,
                             .x = rows.parts,
                             .offsets = own_offsets(all_offsets),
                             .rank = shape.ep_rank,
                             .range = range,
                             .used = static_cast<double>(shape.even_rows()) / static_cast<double>(rows.parts.rows)});
    started = compute.record();
  }
  ep->stream().wait(started);
  ep->all_to_all(rows.own, gathered ? rows.received : rows.held, own_offsets(all_offsets), true, range);
  return moved(rows.own, *ep);
}

Tensor TensorParallel::routed_share(const Tensor& x) const {
  const std::int64_t rows = shape.share_tokens();
  return x.rows == rows ? x : x.slice_rows(shape.tp_rank * rows, rows);
}

Arriving TensorParallel::gather_shares(const Tensor& x) const {
  tp.stream().wait(compute.record());
  tp.all_gather(x, routed_share(x));
  return issued(x);
}

std::vector<tensor::ExpertRange> TensorParallel::expert_parts() const {
  // The first exchange before the experts and the last one behind them are exposed. More parts expose less, but each
  // has a latency of its own.
  constexpr std::int64_t kParts = 4;
  const std::int64_t held = shape.own_experts();
  const std::int64_t parts = shape.exchanges_slots && overlap_ep ? std::min(kParts, held) : 1;
  if (parts == 1) return {{}};
  std::vector<tensor::ExpertRange> ranges;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t first = held * i / parts;
    ranges.push_back({first, held * (i + 1) / parts - first});
  }
  return ranges;
}

Tensor TensorParallel::arrived(const Arriving& arriving) const {
  if (arriving.event) compute.wait(arriving.event);
  return arriving.tensor;
}

void TensorParallel::gather_small(const Tensor& small, const Tensor& all) const {
  tp.stream().wait(compute.record());
  tp.all_gather(all, small);
  compute.wait(tp.stream().record());
}

}  // namespace ms::nn
