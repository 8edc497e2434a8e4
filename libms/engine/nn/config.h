// [model]: the model to train.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "mesh/config.h"
#include "nn/layer_list.h"
#include "tensor/expert_ops.h"

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
  std::int64_t rotary_dim = 0;
  double rotary_base = 10000;
  std::string rotary_scaling = "none";
  double rotary_factor = 8;
  double rotary_low_freq = 1;
  double rotary_high_freq = 0;
  std::int64_t rotary_original_seq = 8192;
  double rotary_attention_factor = 0;
  bool qkv_bias = false;
  bool out_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;
  bool parallel_block = false;
  bool exact_gelu = false;
  std::int64_t window = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 2;
  std::string dense_layers = {};
  std::int64_t expert_ffn_hidden = 0;
  std::int64_t shared_experts = 0;
  bool shared_expert_gate = false;
  std::string router = "softmax";
  bool router_normalized = true;
  double router_scale = 1;
  bool router_bias = false;
  std::int64_t router_groups = 1, router_groups_per_token = 1;
  std::int64_t patch_size = 0;
  bool fused = true;
  double init_std = 0.02;

  bool is_gpt() const { return family == "gpt"; }
  bool is_neox() const { return family == "neox"; }
  bool gated() const { return family == "llama"; }
  bool has_layer_norm() const { return !gated(); }
  bool shares_norm() const { return parallel_block && !is_neox(); }  // attention and MLP read the same
  std::int64_t kv() const { return kv_heads == 0 ? heads : kv_heads; }
  std::int64_t patch_numbers() const { return 3 * patch_size * patch_size; }
  std::int64_t ffn() const { return ffn_hidden == 0 ? 4 * hidden : ffn_hidden; }
  std::int64_t expert_ffn() const { return expert_ffn_hidden == 0 ? ffn() : expert_ffn_hidden; }
  std::int64_t shared_ffn() const { return experts > 0 ? shared_experts * expert_ffn() : 0; }
  bool has_experts(std::int64_t layer) const { return experts > 0 && !lists_layer(dense_layers, layer); }
  std::int64_t dense_layer_count() const { return experts > 0 ? listed_layers(dense_layers, layers) : 0; }
  std::int64_t head_dim() const { return head_size == 0 ? hidden / heads : head_size; }
  std::int64_t rotary() const { return rotary_dim == 0 ? head_dim() : rotary_dim; }
  double rotary_high() const { return rotary_high_freq > 0 ? rotary_high_freq : rotary_scaling == "yarn" ? 32 : 4; }
  double rotary_magnitude() const {  // of YaRN's paper, section 3.4
    if (rotary_scaling != "yarn") return 1;
    return rotary_attention_factor > 0 ? rotary_attention_factor : 0.1 * std::log(rotary_factor) + 1;
  }
  bool has_qkv_bias() const { return !gated() || qkv_bias; }
  bool has_out_bias() const { return !gated() || out_bias; }
  bool has_mlp_bias() const { return !gated() || mlp_bias; }
};

inline constexpr Field<ModelConfig> kModelFields[] = {
    {.key = "family",
     .member = &ModelConfig::family,
     .doc = "gpt: LayerNorm, biases, GELU, learned positions. llama: RMSNorm, rotary positions, SwiGLU, no biases by "
            "default. The keys below adapt llama to Mistral, Qwen2 and Qwen3. neox: as gpt with rotary positions; with "
            "rotary_dim, exact_gelu and parallel_block it is GPT-NeoX and Pythia.",
     .choices = {"gpt", "llama", "neox"}},
    {"layers", &ModelConfig::layers, "Transformer blocks.", Unit::none, 1, 10000},
    {"hidden", &ModelConfig::hidden, "Width of the residual stream.", Unit::none, 1, 1e6},
    {"heads", &ModelConfig::heads, "Attention heads.", Unit::none, 1, 1e5},
    {"kv_heads", &ModelConfig::kv_heads, "Key and value heads (grouped-query attention); 0: as many as heads.",
     Unit::none, 0, 1e5},
    {"head_dim", &ModelConfig::head_size, "Size of an attention head; 0: hidden / heads.", Unit::none, 0, 256},
    {"ffn_hidden", &ModelConfig::ffn_hidden, "Width of the feed-forward layer; 0: 4 * hidden.", Unit::none, 0, 1e7},
    {"vocab", &ModelConfig::vocab, "Size of the vocabulary: all token ids are below it.", Unit::none, 2, 1e8},
    {"vocab_multiple", &ModelConfig::vocab_multiple,
     "Pad each tp rank's part of the vocabulary to a multiple of this in memory, never in checkpoints. With 64 every "
     "row of logits begins on a cache line, so that the head's GEMMs and the loss read aligned words of 16 bytes, also "
     "with GPT-2's 50257 tokens.",
     Unit::none, 1, 65'536},
    {"seq", &ModelConfig::seq, "Tokens per sequence.", Unit::none, 1, 1e8},
    {"tied_embeddings", &ModelConfig::tied_embeddings,
     "The output layer shares the token embedding's matrix. With mesh.pp above 1 its two gradients are first summed "
     "per stage. The last bits of results then depend on pp, but not on other settings of the pipeline. Untied, "
     "results do not depend on the pipeline at all."},
    {"norm_eps", &ModelConfig::norm_eps, "Epsilon added to the variance in norms.", Unit::none, 0, 1},
    {"rotary_dim", &ModelConfig::rotary_dim,
     "Rotate only the first so many elements of each head's queries and keys, as in Phi-4-mini and Pythia (llama, "
     "neox); "
     "0: all.",
     Unit::none, 0, 256},
    {"rotary_base", &ModelConfig::rotary_base, "Base of the rotary angles (llama, neox).", Unit::none, 1, 1e12},
    {.key = "rotary_scaling",
     .member = &ModelConfig::rotary_scaling,
     .doc = "Scales rotary frequencies for sequences longer than in pre-training (llama, neox). linear: divide all by "
            "rotary_factor. llama3 (Llama 3.1): divide frequencies with fewer than rotary_low_freq turns in "
            "rotary_original_seq tokens by rotary_factor, keep those with more than rotary_high_freq turns, and "
            "interpolate between the two. yarn: the same with another interpolation; also multiply rotated queries and "
            "keys by rotary_attention_factor.",
     .choices = {"none", "linear", "llama3", "yarn"}},
    {"rotary_factor", &ModelConfig::rotary_factor, "See rotary_scaling.", Unit::none, 1, 1e6},
    {"rotary_low_freq", &ModelConfig::rotary_low_freq, "See rotary_scaling.", Unit::none, 0, 1e6},
    {"rotary_high_freq", &ModelConfig::rotary_high_freq, "See rotary_scaling; 0: 4 for llama3, 32 for yarn.",
     Unit::none, 0, 1e6},
    {"rotary_original_seq", &ModelConfig::rotary_original_seq, "See rotary_scaling.", Unit::none, 1, 1e8},
    {"rotary_attention_factor", &ModelConfig::rotary_attention_factor,
     "See rotary_scaling (yarn); 0: 0.1 ln(rotary_factor) + 1.", Unit::none, 0, 1e6},
    {"qkv_bias", &ModelConfig::qkv_bias,
     "Queries, keys and values have biases (llama), as in Qwen2. gpt and neox always have all biases."},
    {"out_bias", &ModelConfig::out_bias, "The attention's output matrix has a bias (llama)."},
    {"mlp_bias", &ModelConfig::mlp_bias, "The MLP's matrices have biases (llama)."},
    {"qk_norm", &ModelConfig::qk_norm, "RMSNorm of each head's queries and keys before rotation, as in Qwen3 (llama)."},
    {"parallel_block", &ModelConfig::parallel_block,
     "Compute y = x + attention(norm(x)) + mlp(norm(x)) with one norm, instead of attention before mlp. This is a "
     "different model, with half the collectives of tensor parallelism. neox has a norm each for attention and mlp."},
    {"exact_gelu", &ModelConfig::exact_gelu,
     "Compute GELU with the error function, as in Pythia, instead of its tanh form, as in GPT-2 (gpt, neox)."},
    {"window", &ModelConfig::window,
     "Sliding window: each token attends to this many tokens, itself included; 0: to all previous tokens.", Unit::none,
     0, 1e8},
    {"experts", &ModelConfig::experts,
     "Mixture of experts (llama): so many MLPs in place of each layer's one. A router chooses experts_per_token of "
     "them "
     "for each token; none is dropped unless train.moe_capacity limits them. 0: one MLP for all tokens.",
     Unit::none, 0, 1e5},
    {"experts_per_token", &ModelConfig::experts_per_token, "Experts that each token passes through.", Unit::none, 1,
     1e5},
    {"dense_layers", &ModelConfig::dense_layers,
     "Layers with one MLP of ffn_hidden in place of experts, as Slurm writes the tasks of an array: \"0-2\" are the "
     "first three, \"0-46:2\" is every other. Empty: all layers have experts."},
    {"expert_ffn_hidden", &ModelConfig::expert_ffn_hidden, "Width of an expert's feed-forward layer; 0: ffn_hidden.",
     Unit::none, 0, 1e7},
    {"shared_experts", &ModelConfig::shared_experts,
     "Experts that every token passes beside those of the router: one MLP of so many times expert_ffn_hidden.",
     Unit::none, 0, 1e5},
    {"shared_expert_gate", &ModelConfig::shared_expert_gate,
     "Multiply the output of the shared experts by the sigmoid of a learned projection of the token, as in Qwen2-MoE."},
    {.key = "router",
     .member = &ModelConfig::router,
     .doc = "What makes a token's scores of its router's logits, which are in fp32: their softmax over all experts, or "
            "the sigmoid of each. The experts with the highest scores are chosen, and their outputs are multiplied by "
            "their scores.",
     .choices = {"softmax", "sigmoid"}},
    {"router_normalized", &ModelConfig::router_normalized,
     "Divide the scores of a token's experts by their sum, as Mixtral does (norm_topk_prob in Qwen's models)."},
    {"router_scale", &ModelConfig::router_scale, "Multiply the scores of a token's experts by this.", Unit::none, 0,
     1e6},
    {"router_bias", &ModelConfig::router_bias,
     "Choose experts by their scores plus a bias of each expert, which train.moe_bias_rate changes so that the load "
     "evens, without a loss, as in DeepSeek-V3. Outputs are still multiplied by the scores without the bias. "
     "Checkpoints have the biases, in fp32."},
    {"router_groups", &ModelConfig::router_groups,
     "Equal groups of neighboring experts. A token chooses its experts from router_groups_per_token of them, those "
     "with "
     "the highest sums of their two highest scores (plus bias), as in DeepSeek-V3. 1: from all experts.",
     Unit::none, 1, static_cast<double>(tensor::kMostGroups)},
    {"router_groups_per_token", &ModelConfig::router_groups_per_token, "See router_groups.", Unit::none, 1,
     static_cast<double>(tensor::kMostGroups)},
    {"patch_size", &ModelConfig::patch_size,
     "Take images, in patches of so many pixels a side, as ms-data encode --image-size writes them: a linear "
     "projection of a patch is added to the embedding of its token, as in Fuyu. 0: the model takes text alone.",
     Unit::none, 0, 256},
    {"fused", &ModelConfig::fused,
     "Fuse element-wise operations and the sums of bias gradients into the neighboring GEMM or norm, and GEMMs of a "
     "parallel block with the same input into one. false, for comparison: each is a separate operation."},
    {"init_std", &ModelConfig::init_std,
     "Standard deviation of initial weights. For outputs into the residual stream it is divided by sqrt(2 layers).",
     Unit::none, 0, 10},
};

// Checks rules between fields; `microbatch` is in sequences. Returns the key and message of every rule that is broken.
struct ModelProblem {
  std::string key, message;
};
std::vector<ModelProblem> check_model(const ModelConfig& model, const mesh::MeshConfig& mesh, std::int64_t microbatch);

// How ranks of cp see each other's tokens (mesh.cp_type): they gather all keys and values, exchange tokens for heads,
// or pass keys and values around a ring.
enum class CpType : std::uint8_t { all_gather, all_to_all, ring };
constexpr std::string_view to_string(CpType type) {
  if (type == CpType::ring) return "ring";
  return type == CpType::all_to_all ? "all-to-all" : "all-gather";
}
constexpr CpType cp_type_from(std::string_view name) {
  if (name == to_string(CpType::ring)) return CpType::ring;
  return name == to_string(CpType::all_to_all) ? CpType::all_to_all : CpType::all_gather;
}

}  // namespace ms::nn
