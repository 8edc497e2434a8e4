// The ops of attention, a part of the op list (tensor/ops.h, which tells what is common to all).
#pragma once

#include "tensor/op.h"

namespace ms::tensor {

// Causal attention without the s x s matrix. q[T, heads*head_dim], k, v[T, kv_heads*head_dim] (views with their own
// ld), o like q. Query i of a sequence sees keys j with j <= i and, if window > 0, j > i - window. Query head h reads
// key/value head h / (heads / kv_heads). If starts, i32 [1,T], is present, query i also sees only keys j >= starts[i],
// positions in its sequence that are at most i and do not decrease. lse f32 [batch*heads, seq]: log of the sum of
// exp(scale * q.k). In bf16, probabilities and gradients of scores may be rounded to bf16 as operands of matmuls. q, o
// and lse may have the queries of positions first, .. only, as many of each sequence: on the CPU with the same bits.
//
// k and v, too, may have the keys of positions keys_first, .. only, as many of each sequence: on the CPU. A query that
// sees no such key has o = 0 and lse = -inf. If `merges`, o and lse have the results of other keys, and receive those
// of both. o may be f32 where q is bf16, so that it is rounded once, when the results of all keys are in it.
struct AttentionFwd {
  MS_OP("attention_fwd", attention)
  Tensor o, lse, q, k, v;
  std::int64_t batch = 1, seq = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  float scale = 1.0F;
  Tensor starts = {};
  std::int64_t first = 0, keys_first = 0;
  bool merges = false;
  std::int64_t queries() const { return q.rows / batch; }  // of a sequence
  std::int64_t keys() const { return k.rows / batch; }
  void each(auto&& f) const {
    f(Access::read, q), f(Access::read, k), f(Access::read, v), f(Access::read, starts);
    f(Access::write, o), f(Access::write, lse);
  }
};

// Gradients of AttentionFwd: dq is overwritten unless `adds_queries` adds to it, and so are dk and dv unless `adds`
// adds to them. delta, like lse, is scratch: rowsum(dout * o). dq, dout and o have the queries that q has. If k and v
// have a part of the keys, so have dk and dv; o and lse are the results of all keys. The gradients may be f32 where q
// is bf16.
struct AttentionBwd {
  MS_OP("attention_bwd", attention)
  Tensor dq, dk, dv, dout, o, lse, q, k, v, delta;
  std::int64_t batch = 1, seq = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  float scale = 1.0F;
  Tensor starts = {};
  std::int64_t first = 0, keys_first = 0;
  bool adds = false, adds_queries = false;
  std::int64_t queries() const { return q.rows / batch; }  // of a sequence
  std::int64_t keys() const { return k.rows / batch; }
  void each(auto&& f) const {
    f(Access::read, dout), f(Access::read, o), f(Access::read, lse), f(Access::read, q), f(Access::read, k);
    f(Access::read, v), f(Access::read, starts), f(Access::write, dq), f(Access::write, dk), f(Access::write, dv),
        f(Access::write, delta);
  }
};

}  // namespace ms::tensor
