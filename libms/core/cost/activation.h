// Bytes of activations that one transformer layer keeps for its backward: the formulas of Korthikanti et al., "Reducing
// activation recomputation in large transformer models", for 16-bit activations, 1-byte dropout masks and an MLP of
// four times hidden. Estimates for planning; what a run really keeps is in its arena.
#pragma once

#include <cstdint>

namespace ms::cost {

struct ActivationShape {
  double seq, batch, hidden, heads;  // of one microbatch
  double ffn;                        // only for the Megatron estimate
  bool parallel_block = false;       // attention and MLP of one norm's output
  double window = 0;                 // keys that a query sees; 0: all before it
};

// selective: the attention matrix is recomputed or never stored (flash attention); full: only the layer's input is
// kept.
enum class Recompute : std::uint8_t { none, selective, full };

constexpr double activation_bytes_per_layer(const ActivationShape& shape, int tp, bool sequence_parallel,
                                            Recompute recompute) {
  const double sbh = shape.seq * shape.batch * shape.hidden;
  if (recompute == Recompute::full) return 2.0 * sbh;
  const double keys = shape.window > 0 && shape.window < shape.seq ? shape.window : shape.seq;
  const double matrix = recompute == Recompute::none ? 5.0 * shape.heads * keys / shape.hidden : 0.0;
  // 34 = attention 11 + MLP 19 + norms 4, of which tensor parallelism alone leaves 10 whole on every rank. A parallel
  // block has one norm's input and output fewer.
  const double whole = shape.parallel_block ? 6.0 : 10.0;
  return sequence_parallel ? sbh / tp * (whole + 24.0 + matrix) : sbh * (whole + (24.0 + matrix) / tp);
}

// Returns the bytes that a layer keeps in addition between the two halves of a split backward: the output gradients of
// its matmuls, all-gathered for row-parallel ones. The two row-parallel matmuls of a parallel block share one gradient.
constexpr double split_backward_bytes_per_layer(const ActivationShape& shape, int tp) {
  return shape.seq * shape.batch * shape.hidden * ((shape.parallel_block ? 2.0 : 4.0) + 14.0 / tp);
}

// Megatron-LM's estimator, with sequence parallelism and selective recomputation, for any width of the MLP.
constexpr double activation_bytes_megatron(const ActivationShape& shape, int tp) {
  return shape.seq * shape.batch * shape.hidden * (18.0 + 4.0 * shape.ffn / shape.hidden) / tp;
}

}  // namespace ms::cost
