// The cuDNN graphs of causal attention, one kernel each. (cuDNN 9's attention operation has no attribute for a causal
// mask, but cuDNN recognises this sequence of plain operations.)
#pragma once

#include <compare>
#include <cstdint>

#include "tensor/cuda/cudnn_graph.h"

namespace ms::tensor {

// The key of a plan. Rows of q, k, v, o and of their gradients are the given numbers of elements apart.
struct AttentionKey {
  std::int64_t batch = 1, seq = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
  std::int64_t q_ld = 0, k_ld = 0, v_ld = 0, o_ld = 0;
  std::int64_t dq_ld = 0, dk_ld = 0, dv_ld = 0, dout_ld = 0;  // backward
  bool deterministic = true;                                  // backward: dq in a fixed order, without atomics
  bool documents = false;                                     // AttentionFwd::starts is present
  auto operator<=>(const AttentionKey&) const = default;
};

struct AttentionForward {
  explicit AttentionForward(const AttentionKey& key);
  CudnnGraph graph;
  CudnnGraph::Id q, k, v, o, lse, scale, minus_infinity;
  CudnnGraph::Id window = 0;  // by value, f32; 0 if absent
  CudnnGraph::Id starts = 0;  // i32 [batch, 1, seq, 1]; 0 if absent
};

struct AttentionBackward {
  explicit AttentionBackward(const AttentionKey& key);
  CudnnGraph graph;
  CudnnGraph::Id q, k, v, o, dout, lse, delta, dq, dk, dv, scale, one, minus_infinity;
  CudnnGraph::Id window = 0, starts = 0;
  CudnnGraph::Id dq_sum = 0;  // f32 [batch, heads, seq, head_dim], zeroed before; 0 if deterministic
};

}  // namespace ms::tensor
