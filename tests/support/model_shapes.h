// The two families of models with everything else given: GPT has biases, learned positions, a plain MLP of 4 hidden and
// tied embeddings; Llama has a gated MLP.
#pragma once

#include "cost/flops.h"

namespace ms::cost {

inline ModelShape gpt_shape(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t vocab,
                            std::int64_t seq) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = hidden / heads,
          .ffn = 4 * hidden,
          .vocab = vocab,
          .seq = seq,
          .tied = true,
          .norm_bias = true,
          .qkv_bias = true,
          .out_bias = true,
          .mlp_bias = true,
          .learned_positions = true};
}

inline ModelShape llama_shape(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                              std::int64_t ffn, std::int64_t vocab, std::int64_t seq) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = hidden / heads,
          .ffn = ffn,
          .vocab = vocab,
          .seq = seq,
          .gated_mlp = true};
}

}  // namespace ms::cost
