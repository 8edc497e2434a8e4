// Parameters and floating-point operations of a decoder-only transformer. Pure; the only place where they are counted.
//
// Four conventions for the FLOPs of training one token (forward and backward, 2 per multiply-add), always named when
// printed, never with recomputation:
//   gemm      6 P, P the weights of all GEMMs (attention, MLP, head; not the embedding of tokens and patches). Of
//   experts
//             those that a token passes count, and the router
//   causal    gemm + 12 l a d (pairs / s): the query-key pairs that the mask leaves, counted exactly, windows included
//   full      gemm + 12 l a d s: as if every query saw every key
//   reported  gemm + 12 l a d min(s, window): the convention of the MegaScale paper; equals full without a window
// with l layers, a heads of d, s the sequence length. Half of full (s / 2 keys a token), which many publications call
// causal, leaves out half of the diagonal: ours is 6 l a d larger.
#pragma once

#include <cstdint>

namespace ms::cost {

struct ModelShape {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // as heads where keys and values are not shared
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;    // width of the MLP, or of an expert
  std::int64_t vocab = 0;  // without padding
  std::int64_t seq = 0;
  std::int64_t experts = 0;  // in place of the MLP, with a router; 0: one MLP
  std::int64_t experts_per_token = 1;
  std::int64_t shared_ffn = 0;    // width of the experts that every token passes
  bool shared_gate = false;       // a factor of theirs, which is learned
  std::int64_t dense_layers = 0;  // of the layers: with one MLP of dense_ffn in place of experts
  std::int64_t dense_ffn = 0;
  std::int64_t window = 0;         // a query sees this many keys, itself included; 0: all before it
  bool parallel_block = false;     // attention and MLP of one norm's output, not each behind its own
  bool gated_mlp = false;          // three matrices instead of two
  bool tied = false;               // the head is the embedding
  bool norm_bias = false;          // norms have biases, beside gains
  bool qkv_bias = false;           // biases of GEMMs: queries, keys and values,
  bool out_bias = false;           // the attention's output,
  bool mlp_bias = false;           // all of the MLP
  bool qk_norm = false;            // gains of head_dim for queries and for keys
  bool learned_positions = false;  // a table of seq x hidden
  std::int64_t patch_numbers = 0;  // of a patch of an image, which a matrix projects to hidden; 0: no images
};

struct Parameters {
  std::int64_t embedding = 0;  // token table, positions if learned, the projection of patches
  std::int64_t per_layer = 0;  // with experts, if the model has some, as the next one
  std::int64_t final_norm = 0;
  std::int64_t head = 0;            // 0 if tied
  std::int64_t active = 0;          // of the total, those that a token passes: without the experts that it does not
  std::int64_t total = 0;           // of the model: embedding + layers * per_layer + final_norm + head
  std::int64_t gemm_per_layer = 0;  // weights of GEMMs that a token passes, without biases
  std::int64_t gemm = 0;            // P above: layers * gemm_per_layer + vocab * hidden, tied or not
};
Parameters count_parameters(const ModelShape& shape);

// Query-key pairs that the causal mask and the window leave, of a sequence's first queries and its first keys.
std::int64_t causal_pairs(std::int64_t queries, std::int64_t window, std::int64_t keys);
// Those of one sequence.
inline std::int64_t causal_pairs(std::int64_t seq, std::int64_t window) { return causal_pairs(seq, window, seq); }

struct FlopsPerToken {
  double gemm = 0.0, causal = 0.0, full = 0.0, reported = 0.0;
};
FlopsPerToken flops_per_token(const ModelShape& shape);

}  // namespace ms::cost
