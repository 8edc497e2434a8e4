// [model]: the model to train.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "mesh/config.h"

namespace ms::nn {

struct ModelConfig {
  std::string family = "gpt";
  std::int64_t layers = 12;
  std::int64_t hidden = 768;
  std::int64_t heads = 12;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t ffn_hidden = 0;
  std::int64_t vocab = 50257;
  std::int64_t vocab_multiple = 64;
  std::int64_t seq = 1024;
  bool tied_embeddings = true;
  double norm_eps = 1e-5;
  double rotary_base = 10000;
  std::string rotary_scaling = "none";
  double rotary_factor = 8;
  double rotary_low_freq = 1;
  double rotary_high_freq = 4;
  std::int64_t rotary_original_seq = 8192;
  bool qkv_bias = false;
  bool out_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool parallel_block = false;
  std::int64_t window = 0;
  bool fused = true;
  double init_std = 0.02;

  bool is_gpt() const { return family == "gpt"; }
  bool gated() const { return family == "llama"; }
  std::int64_t kv() const { return kv_heads == 0 ? heads : kv_heads; }
  std::int64_t ffn() const { return ffn_hidden == 0 ? 4 * hidden : ffn_hidden; }
  std::int64_t head_dim() const { return head_size == 0 ? hidden / heads : head_size; }
  bool has_qkv_bias() const { return is_gpt() || qkv_bias; }
  bool has_out_bias() const { return is_gpt() || out_bias; }
  bool has_mlp_bias() const { return is_gpt() || mlp_bias; }
};

inline constexpr Field<ModelConfig> kModelFields[] = {
    {.key = "family",
     .member = &ModelConfig::family,
     .doc = "gpt: LayerNorm, biases, GELU, learned positions. llama: RMSNorm, rotary positions, SwiGLU, no biases by "
            "default. The keys below adapt llama to Mistral, Qwen2 and Qwen3.",
     .choices = {"gpt", "llama"}},
    {.key = "layers", .member = &ModelConfig::layers, .doc = "Transformer blocks.", .min = 1, .max = 10000},
    {.key = "hidden", .member = &ModelConfig::hidden, .doc = "Width of the residual stream.", .min = 1, .max = 1e6},
    {.key = "heads", .member = &ModelConfig::heads, .doc = "Attention heads.", .min = 1, .max = 1e5},
    {.key = "kv_heads",
     .member = &ModelConfig::kv_heads,
     .doc = "Key and value heads (grouped-query attention); 0: as many as heads.",
     .min = 0,
     .max = 1e5},
    {.key = "head_dim",
     .member = &ModelConfig::head_size,
     .doc = "Size of an attention head; 0: hidden / heads.",
     .min = 0,
     .max = 256},
    {.key = "ffn_hidden",
     .member = &ModelConfig::ffn_hidden,
     .doc = "Width of the feed-forward layer; 0: 4 * hidden.",
     .min = 0,
     .max = 1e7},
    {.key = "vocab",
     .member = &ModelConfig::vocab,
     .doc = "Size of the vocabulary: all token ids are below it.",
     .min = 2,
     .max = 1e8},
    {.key = "vocab_multiple",
     .member = &ModelConfig::vocab_multiple,
     .doc = "Pad each tp rank's part of the vocabulary to a multiple of this in memory, never in checkpoints. With 64 "
            "every row of logits begins on a cache line, so that the head's GEMMs and the loss read aligned words of "
            "16 bytes, also with GPT-2's 50257 tokens.",
     .min = 1,
     .max = 65'536},
    {.key = "seq", .member = &ModelConfig::seq, .doc = "Tokens per sequence.", .min = 1, .max = 1e8},
    {.key = "tied_embeddings",
     .member = &ModelConfig::tied_embeddings,
     .doc = "The output layer shares the token embedding's matrix. With mesh.pp above 1 its two gradients are first "
            "summed per stage. The last bits of results then depend on pp, but not on other settings of the pipeline. "
            "Untied, results do not depend on the pipeline at all."},
    {.key = "norm_eps",
     .member = &ModelConfig::norm_eps,
     .doc = "Epsilon added to the variance in norms.",
     .min = 0,
     .max = 1},
    {.key = "rotary_base",
     .member = &ModelConfig::rotary_base,
     .doc = "Base of the rotary angles (llama).",
     .min = 1,
     .max = 1e12},
    {.key = "rotary_scaling",
     .member = &ModelConfig::rotary_scaling,
     .doc = "Scales rotary frequencies for sequences longer than in pre-training (llama). linear: divide all by "
            "rotary_factor. llama3 (Llama 3.1): divide frequencies with fewer than rotary_low_freq turns in "
            "rotary_original_seq tokens by rotary_factor, keep those with more than rotary_high_freq turns, and "
            "interpolate between the two.",
     .choices = {"none", "linear", "llama3"}},
    {.key = "rotary_factor", .member = &ModelConfig::rotary_factor, .doc = "See rotary_scaling.", .min = 1, .max = 1e6},
    {.key = "rotary_low_freq",
     .member = &ModelConfig::rotary_low_freq,
     .doc = "See rotary_scaling.",
     .min = 0,
     .max = 1e6},
    {.key = "rotary_high_freq",
     .member = &ModelConfig::rotary_high_freq,
     .doc = "See rotary_scaling.",
     .min = 0,
     .max = 1e6},
    {.key = "rotary_original_seq",
     .member = &ModelConfig::rotary_original_seq,
     .doc = "See rotary_scaling.",
     .min = 1,
     .max = 1e8},
    {.key = "qkv_bias",
     .member = &ModelConfig::qkv_bias,
     .doc = "Queries, keys and values have biases (llama), as in Qwen2. gpt always has all biases."},
    {.key = "out_bias", .member = &ModelConfig::out_bias, .doc = "The attention's output matrix has a bias (llama)."},
    {.key = "mlp_bias", .member = &ModelConfig::mlp_bias, .doc = "The MLP's matrices have biases (llama)."},
    {.key = "qk_norm",
     .member = &ModelConfig::qk_norm,
     .doc = "RMSNorm of each head's queries and keys before rotation, as in Qwen3 (llama)."},
    {.key = "parallel_block",
     .member = &ModelConfig::parallel_block,
     .doc = "Compute y = x + attention(norm(x)) + mlp(norm(x)) with one norm, instead of attention before mlp. This is "
            "a different model, with half the collectives of tensor parallelism."},
    {.key = "window",
     .member = &ModelConfig::window,
     .doc = "Sliding window: each token attends to this many tokens, itself included; 0: to all previous tokens.",
     .min = 0,
     .max = 1e8},
    {.key = "fused",
     .member = &ModelConfig::fused,
     .doc = "Fuse element-wise operations and the sums of bias gradients into the neighboring GEMM or norm, and GEMMs "
            "of a parallel block with the same input into one. false, for comparison: each is a separate operation."},
    {.key = "init_std",
     .member = &ModelConfig::init_std,
     .doc =
         "Standard deviation of initial weights. For outputs into the residual stream it is divided by sqrt(2 layers).",
     .min = 0,
     .max = 10},
};

// Checks rules between fields; `microbatch` is in sequences. Returns the key and message of every rule that is broken.
struct ModelProblem {
  std::string key, message;
};
std::vector<ModelProblem> check_model(const ModelConfig& model, const mesh::MeshConfig& mesh, std::int64_t microbatch);

}  // namespace ms::nn
