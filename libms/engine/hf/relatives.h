// The models of transformers that are built like Llama, one row each: adding a row adds a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "nn/config.h"

namespace ms::hf {

// The relatives of Llama in transformers, as the keys of [model] tell them apart; a model is exported as the first that
// computes the same. Biases of a family that reads attention_bias are those of queries, keys, values and output.
struct Relative {
  enum class Window : std::uint8_t { never, read, flagged, flagged_for_all, flagged_alternating, unflagged };
  // The keys of experts in place of the MLP, and what holds where config.json is silent.
  struct Experts {
    static constexpr std::string_view kCommonKey = "num_local_experts";
    std::string_view count_key, width_key;
    std::int64_t count = 0, per_token = 0, width = 0;
    std::int64_t shared_width = 0;  // of gated shared experts (shared_expert_intermediate_size); 0: there are none
    bool reads_normalized = false;  // norm_topk_prob; otherwise always
    bool has_dense_layers = false;  // decoder_sparse_step and mlp_only_layers
    // As in DeepSeek-V3: a sigmoid router with a bias, groups (n_group, topk_group) and routed_scaling_factor, experts
    // for all tokens without a gate (n_shared_experts), and first_k_dense_replace. Layers are not dense otherwise.
    bool is_deepseek = false;
  };
  std::string_view type, class_name;
  std::int64_t kv_heads = 0, head_dim = 0, seq = 0;  // where config.json is silent; 0: follows from others
  bool reads_attention_bias = false, reads_mlp_bias = false;
  bool qkv_bias = false, qk_norm = false;  // always
  bool reads_qkv_bias = false;             // of which only true is supported
  bool reads_partial_rotary = false;       // partial_rotary_factor
  // flagged: where use_sliding_window says so, in layers from max_window_layers on; flagged_for_all: in all;
  // flagged_alternating: in every other layer before max_window_layers; unflagged: as flagged, without
  // use_sliding_window. layer_types, where it is read, precedes.
  Window window = Window::never;
  std::int64_t default_window = 0;          // where config.json is silent; 0: none
  std::int64_t default_window_layers = 28;  // max_window_layers
  double rotary_base = 10000, norm_eps = 1e-6;
  std::optional<Experts> experts = {};
};
inline constexpr Relative kRelatives[] = {
    {.type = "llama",
     .class_name = "LlamaForCausalLM",
     .seq = 2048,
     .reads_attention_bias = true,
     .reads_mlp_bias = true},
    {.type = "mistral",
     .class_name = "MistralForCausalLM",
     .kv_heads = 8,
     .seq = 131072,
     .window = Relative::Window::read,
     .default_window = 4096},
    {.type = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .seq = 32768,
     .qkv_bias = true,
     .window = Relative::Window::flagged,
     .default_window = 4096},
    {.type = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .kv_heads = 32,
     .head_dim = 128,
     .seq = 32768,
     .reads_attention_bias = true,
     .qk_norm = true,
     .window = Relative::Window::flagged,
     .default_window = 4096},
    {.type = "phi3",
     .class_name = "Phi3ForCausalLM",
     .seq = 4096,
     .reads_partial_rotary = true,
     .window = Relative::Window::read,
     .norm_eps = 1e-5},
    {.type = "mixtral",
     .class_name = "MixtralForCausalLM",
     .kv_heads = 8,
     .seq = 131072,
     .window = Relative::Window::read,
     .rotary_base = 1e6,
     .norm_eps = 1e-5,
     .experts =
         Relative::Experts{
             .count_key = "num_local_experts", .width_key = "intermediate_size", .count = 8, .per_token = 2}},
    {.type = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .kv_heads = 4,
     .seq = 32768,
     .reads_attention_bias = true,
     .qk_norm = true,
     .window = Relative::Window::flagged_for_all,
     .default_window = 4096,
     .experts = Relative::Experts{.count_key = "num_experts",
                                  .width_key = "moe_intermediate_size",
                                  .count = 128,
                                  .per_token = 8,
                                  .width = 768,
                                  .reads_normalized = true,
                                  .has_dense_layers = true}},
    {.type = "qwen2_moe",
     .class_name = "Qwen2MoeForCausalLM",
     .kv_heads = 16,
     .seq = 32768,
     .qkv_bias = true,
     .reads_qkv_bias = true,
     .window = Relative::Window::flagged_alternating,
     .default_window = 4096,
     .experts = Relative::Experts{.count_key = "num_experts",
                                  .width_key = "moe_intermediate_size",
                                  .count = 60,
                                  .per_token = 4,
                                  .width = 1408,
                                  .shared_width = 5632,
                                  .reads_normalized = true,
                                  .has_dense_layers = true}},
    {.type = "dots1",
     .class_name = "Dots1ForCausalLM",
     .kv_heads = 32,
     .seq = 2048,
     .reads_attention_bias = true,
     .qk_norm = true,
     .window = Relative::Window::unflagged,
     .default_window = 4096,
     .default_window_layers = 62,
     .experts = Relative::Experts{.count_key = "n_routed_experts",
                                  .width_key = "moe_intermediate_size",
                                  .width = 1408,
                                  .reads_normalized = true,
                                  .is_deepseek = true}},
};

// Those that are not built like Llama: GPT-2, and GPT-NeoX, whose rotary positions are read as Llama's.
inline constexpr std::string_view kGpt2 = "gpt2";
inline constexpr Relative kNeox{.type = "gpt_neox", .class_name = "GPTNeoXForCausalLM", .reads_partial_rotary = true};
inline constexpr std::string_view kExactGelu = "gelu";  // the others are one formula: its tanh form

// Keys and values in config.json.
inline constexpr std::string_view kSharedWidth = "shared_expert_intermediate_size";
inline constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";

inline bool has_window_layers(const Relative& relative) {
  return relative.window == Relative::Window::flagged || relative.window == Relative::Window::flagged_alternating ||
         relative.window == Relative::Window::unflagged;
}

inline bool has_window(const nn::ModelConfig& model) { return model.window != 0 && model.window < model.seq; }

// Tells whether the dense layers are the first ones of the model.
inline bool has_dense_layers_first(const nn::ModelConfig& model) {
  const std::int64_t dense = model.dense_layer_count();
  return dense == 0 || nn::listed_layers(model.dense_layers, dense) == dense;
}

inline bool same_experts(const Relative::Experts& experts, const nn::ModelConfig& model) {
  const bool has_shared = model.shared_experts > 0;
  if (model.experts == 0 || (!experts.reads_normalized && !model.router_normalized)) return false;
  if (experts.is_deepseek)
    return model.router == "sigmoid" && model.router_bias && has_shared && !model.shared_expert_gate &&
           has_dense_layers_first(model);
  return model.router == "softmax" && model.router_scale == 1 && !model.router_bias && model.router_groups == 1 &&
         (experts.has_dense_layers || model.dense_layers.empty()) && has_shared == (experts.shared_width > 0) &&
         has_shared == model.shared_expert_gate;
}

inline bool computes(const Relative& relative, const nn::ModelConfig& model) {
  const bool same_biases = relative.reads_attention_bias ? model.qkv_bias == model.out_bias
                                                         : model.qkv_bias == relative.qkv_bias && !model.out_bias;
  const bool same_rotary =
      model.rotary() == model.head_dim() || (relative.reads_partial_rotary && model.rotary_scaling == "none");
  return same_biases && same_rotary &&
         (relative.experts ? same_experts(*relative.experts, model) : model.experts == 0) &&
         (relative.reads_mlp_bias || !model.mlp_bias) && relative.qk_norm == model.qk_norm &&
         (relative.window != Relative::Window::never || !has_window(model));
}

}  // namespace ms::hf
