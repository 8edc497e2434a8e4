// Context parallelism (mesh.cp): how the tokens of whole sequences come to a rank's attention. Internal to this module.
//
// Bits: whatever is exchanged, each query meets the same keys in the same order as on one rank, in an attention whose
// arithmetic for a query does not depend on other queries (tensor/attention_ops.h). So the forward, and the gradients
// of queries, have the bits of one rank on a CPU. Those of keys and values have them where heads are exchanged; where
// keys are gathered, they are summed piece by piece on each rank, and then over the ranks. Where keys are passed
// around, attention is summed rank by rank, from the own one backwards (context_ring.cpp), in f32. Gradients of
// parameters are sums over the tokens of a rank, and then over ranks, as with dp.
#pragma once

#include <span>

#include "nn/layer.h"

namespace ms::nn {

// The q, k and v columns of a [T,Q], or of [S,Q/cp].
struct Heads {
  Tensor q, k, v;
};

// Collective over cp, as all of these are. Returns the queries with the keys and values of all tokens in order, which
// are in scratch until the next call.
Heads gather_keys(const Layer& layer, const Heads& own);
// Sums the gradients of all keys and values, ContextScratch::dall, over the ranks -> those of the own ones.
void reduce_key_gradients(const Layer& layer, const Heads& own);

// All heads of the own tokens, in blocks [T,cols] -> the own heads of all tokens in order, [S,all cols / cp], or back.
void tokens_to_heads(const Layer& layer, std::span<const Tensor> blocks, const Tensor& in_order);
void heads_to_tokens(const Layer& layer, const Tensor& in_order, std::span<const Tensor> blocks);

// Returns the op of those queries of `whole`, which has the rank's own, that are in piece i of the sequences.
template <class Attention>
Attention op_of_piece(const Shape& shape, const Attention& whole, int i) {
  const std::int64_t piece = shape.piece(), rows = shape.batch * piece;
  Attention op = whole;
  op.first = shape.first_of_piece(i);
  for (Tensor* x : {&op.q, &op.o}) *x = x->slice_rows(i * rows, rows);
  op.lse = op.lse.slice_cols(i * piece, piece);
  if constexpr (requires { op.dq; }) {
    for (Tensor* x : {&op.dq, &op.dout}) *x = x->slice_rows(i * rows, rows);
    op.delta = op.delta.slice_cols(i * piece, piece);
  }
  return op;
}

// Issue the op, whose queries, keys, values and gradients are the rank's own, for the keys and values of all ranks,
// which are passed around.
void pass_keys_forward(const Layer& layer, tensor::AttentionFwd op);
void pass_keys_backward(const Layer& layer, tensor::AttentionBwd op);

}  // namespace ms::nn
