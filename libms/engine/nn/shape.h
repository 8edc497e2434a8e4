// Sizes of a layer on a rank, which follow from the model, the mesh and the microbatch. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "nn/config.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace ms::nn {

using tensor::Arena;
using tensor::DType;
using tensor::Residual;
using tensor::Tensor;

enum class Recompute : std::uint8_t {
  none,       // keep everything that the backward reads
  selective,  // recompute what is cheap: norms' and the activation's outputs
  full,       // keep a layer's input only, run its forward again
};
inline Recompute recompute_from(std::string_view name) {
  if (name == "selective") return Recompute::selective;
  return name == "full" ? Recompute::full : Recompute::none;
}

// Sizes that follow from the model, the mesh and the microbatch.
struct Shape {
  const ModelConfig* model = nullptr;
  std::int64_t batch = 0;  // sequences in a microbatch
  int tp = 1, tp_rank = 0;
  // Ranks that share each sequence. A rank has two pieces of each: of the 2 cp that a sequence is cut in, its first
  // ones forwards and its last ones backwards, so that causal attention is as much work for each rank. Its rows are
  // those of the first piece of all sequences, and then those of the second.
  int cp = 1, cp_rank = 0;
  CpType cp_type = CpType::all_gather;
  int ep = 1, ep_rank = 0;  // ranks that share the experts
  // Each rank of tp holds whole experts, other ones than the others (mesh::Mesh::folds_tp); else a shard of each.
  bool folds_tp = false;
  // Ranks of ep send each other the rows of experts' slots; else they gather each other's tokens.
  bool exchanges_slots = false;
  bool dense = false;       // of a layer with one MLP among those with experts (ModelConfig::dense_layers)
  double moe_capacity = 0;  // what a rank's experts have room for, in even shares of the slots; 0: for all
  bool sequence_parallel = false;
  DType dtype = DType::f32;
  Recompute recompute = Recompute::none;
  bool split_backward = false;  // slots also keep the inputs of the weights' gradients
  bool fp8 = false;             // layers' matmuls round their operands to fp8
  double z_loss = 0;            // weight of the squared log of the softmax's denominator in the loss
  // The router's losses: weights of the balance and of its z-loss; whether each sequence is balanced, not a microbatch.
  double moe_aux_loss = 0, moe_z_loss = 0;
  bool balances_sequences = false;
  // Only the positions [first, first + rows) of each sequence, where layers keep the keys and values of those before
  // (Positions::cache); no rows: all of them.
  std::int64_t first = 0, rows = 0;

  std::int64_t queries() const { return rows > 0 ? rows : model->seq / cp; }  // of a sequence
  int pieces() const { return cp > 1 ? 2 : 1; }
  std::int64_t piece() const { return queries() / pieces(); }  // positions of one
  std::int64_t first_of_piece(int i) const { return first_of_piece(i, cp_rank); }
  std::int64_t first_of_piece(int i, int of_rank) const {
    return cp == 1 ? first : piece() * (i == 0 ? of_rank : 2 * cp - 1 - of_rank);
  }
  std::int64_t tokens() const { return batch * queries(); }
  std::int64_t shard_tokens() const { return sequence_parallel ? tokens() / tp : tokens(); }
  std::int64_t heads() const { return model->heads / tp; }
  std::int64_t kv_heads() const { return model->kv() / tp; }
  bool exchanges_heads() const { return cp > 1 && cp_type == CpType::all_to_all; }
  bool passes_keys() const { return cp > 1 && cp_type == CpType::ring; }
  // Heads, and key-value heads, of attention: those of the ranks of cp together are a tp rank's, if they exchange them.
  std::int64_t attended_heads() const { return exchanges_heads() ? heads() / cp : heads(); }
  std::int64_t attended_kv_heads() const { return exchanges_heads() ? kv_heads() / cp : kv_heads(); }
  std::int64_t attn_cols() const { return heads() * model->head_dim(); }
  std::int64_t kv_cols() const { return kv_heads() * model->head_dim(); }
  std::int64_t qkv_cols() const { return attn_cols() + 2 * kv_cols(); }
  int expert_tp() const { return folds_tp ? 1 : tp; }
  std::int64_t ffn_cols() const { return has_experts() ? model->expert_ffn() / expert_tp() : model->ffn() / tp; }
  std::int64_t shared_cols() const { return has_experts() ? model->shared_ffn() / tp : 0; }
  bool has_shared_gate() const { return has_experts() && model->shared_expert_gate; }
  bool has_experts() const { return model->experts > 0 && !dense; }
  std::int64_t own_experts() const { return model->experts / ep; }
  // Whether each rank of tp routes an equal share of the tokens alone, in their order; else each routes all, as it does
  // where only some positions are computed.
  bool shares_routing() const { return (exchanges_slots || folds_tp) && tp > 1 && rows == 0 && tokens() % tp == 0; }
  int routing_shares() const { return shares_routing() ? tp : 1; }
  std::int64_t share_tokens() const { return tokens() / routing_shares(); }
  // The shares whose rows ranks of tp gather for the experts of which they have a shard each.
  int gathered_shares() const { return shares_routing() ? expert_tp() : 1; }
  // The ep ranks whose tokens a rank routes, those tokens, and the experts that have slots of a rank's router.
  int routed_ranks() const { return exchanges_slots ? 1 : ep; }
  std::int64_t routed_tokens() const { return share_tokens() * routed_ranks(); }
  // Those whose tokens its router counts: if ranks of tp share the routing, those of the tp group.
  int counted_ranks() const { return shares_routing() ? 1 : routed_ranks(); }
  std::int64_t slot_experts() const { return exchanges_slots ? model->experts : own_experts(); }
  // Rows of the MLP: a token's own, or one for each of its experts (the slots of tensor/expert_ops.h), which may all be
  // this rank's.
  std::int64_t ffn_rows() const { return has_experts() ? received_rows() * gathered_shares() : tokens(); }
  // Those that a rank has room for, for one share of the tokens.
  std::int64_t received_rows() const {
    const std::int64_t even = share_tokens() * model->experts_per_token;
    return drops() ? static_cast<std::int64_t>(std::ceil(moe_capacity * static_cast<double>(even))) : even * ep;
  }
  // Those that it has if the load is even.
  std::int64_t even_rows() const { return share_tokens() * gathered_shares() * model->experts_per_token; }
  bool drops() const { return exchanges_slots && moe_capacity > 0 && moe_capacity < ep; }
  // Tells whether matmuls fuse the GELU that follows, in its tanh form. They do not if overlap.tp splits them: fused
  // into chunks, a GELU is slower unless it is free.
  bool joins_gelu() const {
    return !model->gated() && !model->exact_gelu && model->fused && !(sequence_parallel && tp > 1);
  }
  // Tells whether one matmul reads the input of both branches of a parallel block.
  bool joins_inputs() const { return model->shares_norm() && model->fused; }
  std::int64_t up_cols() const { return model->gated() ? 2 * ffn_cols() : ffn_cols(); }
};

}  // namespace ms::nn
