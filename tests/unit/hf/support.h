// Tiny models for tests.
#pragma once

#include <string>
#include <vector>

#include "nn/params.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::hf {

using test::names_in;
using test::slurp;
using test::spill;
using test::TempDir;
using test::thrown_by;

inline constexpr const char* kFamilies[] = {"gpt",   "llama",   "llama3",    "yarn",      "phi3",  "mistral", "qwen2",
                                            "qwen3", "mixtral", "qwen2_moe", "qwen3_moe", "dots1", "neox"};
inline nn::ModelConfig tiny(const std::string& family, bool tied) {
  nn::ModelConfig model;
  model.family = family;
  model.layers = 2;
  model.hidden = 12;
  model.heads = 3;
  model.vocab = 11;
  model.seq = 7;
  model.tied_embeddings = tied;
  model.norm_eps = 1e-3;
  if (family == "neox") {
    model.hidden = 16, model.heads = 4, model.ffn_hidden = 20, model.rotary_dim = 2, model.rotary_base = 500;
    model.parallel_block = model.exact_gelu = true;
  } else if (family != "gpt") {
    model.family = "llama";
    model.hidden = 16, model.heads = 4, model.kv_heads = 2, model.ffn_hidden = 20, model.rotary_base = 500;
  }
  if (family == "mistral") model.window = 4, model.head_size = 6;
  if (family == "phi3") model.rotary_dim = 2;
  if (family == "yarn") {
    model.rotary_scaling = "yarn", model.rotary_original_seq = 4, model.rotary_factor = 2;
    model.rotary_high_freq = 3, model.rotary_attention_factor = 1.25;
  }
  if (family == "qwen2") model.qkv_bias = true;
  if (family == "qwen3") model.qk_norm = true, model.head_size = 10;
  if (family == "mixtral") model.experts = 4;
  if (family == "qwen2_moe") {
    model.qkv_bias = true, model.experts = 4, model.expert_ffn_hidden = 8;
    model.shared_experts = 3, model.shared_expert_gate = true;
  }
  if (family == "qwen3_moe") {
    model.qk_norm = true, model.router_normalized = false;
    model.experts = 6, model.experts_per_token = 3, model.expert_ffn_hidden = 10;
    model.dense_layers = "0";
  }
  if (family == "dots1") {
    model.qk_norm = model.router_bias = true, model.router = "sigmoid", model.router_scale = 2.5;
    model.experts = 8, model.experts_per_token = 3, model.expert_ffn_hidden = 10, model.shared_experts = 2;
    model.router_groups = 4, model.router_groups_per_token = 2, model.dense_layers = "0";
  }
  if (family == "llama3") {
    model.qkv_bias = model.out_bias = model.mlp_bias = true;
    model.rotary_scaling = "llama3", model.rotary_original_seq = 4, model.rotary_factor = 2;
    model.rotary_high_freq = 3;
  }
  return model;
}

inline std::vector<std::string> router_biases(const nn::ModelConfig& model) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < model.layers && model.router_bias; ++i) {
    if (model.has_experts(i)) names.push_back(nn::router_bias_name(i));
  }
  return names;
}

}  // namespace ms::hf
