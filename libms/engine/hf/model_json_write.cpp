// Writes the config.json of a model.
#include "hf/model_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "hf/json_value.h"
#include "hf/relatives.h"

namespace ms::hf {
namespace {

// Readers cut share x head_dim to an integer, which must not fall below.
double rotary_share(const nn::ModelConfig& model) {
  const auto rotary = static_cast<double>(model.rotary()), size = static_cast<double>(model.head_dim());
  double share = rotary / size;
  while (share * size < rotary) share = std::nextafter(share, 1.0);
  return share;
}

Json rope_scaling(const nn::ModelConfig& model) {
  if (model.rotary_scaling == "none") return {};
  Json rope;
  rope["rope_type"] = model.rotary_scaling;
  rope["factor"] = model.rotary_factor;
  if (model.rotary_scaling == "linear") return rope;
  if (model.rotary_scaling == "yarn") {
    rope["beta_slow"] = model.rotary_low_freq;
    rope["beta_fast"] = model.rotary_high();
    rope["attention_factor"] = model.rotary_magnitude();
    rope["original_max_position_embeddings"] = model.rotary_original_seq;
    return rope;
  }
  rope["low_freq_factor"] = model.rotary_low_freq;
  rope["high_freq_factor"] = model.rotary_high();
  rope["original_max_position_embeddings"] = model.rotary_original_seq;
  return rope;
}

void write_experts(const Relative::Experts& experts, const nn::ModelConfig& model, Json& config) {
  config[std::string(experts.count_key)] = model.experts;
  config["num_experts_per_tok"] = model.experts_per_token;
  config[std::string(experts.width_key)] = model.expert_ffn();
  if (experts.reads_normalized) config["norm_topk_prob"] = model.router_normalized;
  if (experts.shared_width > 0) config[std::string(kSharedWidth)] = model.shared_ffn();
  if (experts.has_dense_layers) {
    config["decoder_sparse_step"] = 1;
    config["mlp_only_layers"] = Json::array();
    for (std::int64_t i = 0; i < model.layers; ++i) {
      if (!model.has_experts(i)) config["mlp_only_layers"].push_back(i);
    }
  }
  if (!experts.is_deepseek) return;
  config["n_group"] = model.router_groups;
  config["topk_group"] = model.router_groups_per_token;
  config["routed_scaling_factor"] = model.router_scale;
  config["n_shared_experts"] = model.shared_experts;
  config["first_k_dense_replace"] = model.dense_layer_count();
}

}  // namespace

std::string config_json(const nn::ModelConfig& model, tensor::DType dtype, const Json& token_ids) {
  const std::string_view family = model.is_gpt() ? "GPT-2" : model.is_neox() ? "GPT-NeoX" : "Llama";
  if (!model.gated() && model.kv() != model.heads) {
    throw user_error("hf.export", fmt::format("{} has no grouped-query attention, and this model has {} heads for {}"
                                              " of keys and values",
                                              family, model.heads, model.kv()));
  }
  if (model.patch_size > 0) {
    throw user_error("hf.export", fmt::format("{} takes no images, and this model has model.patch_size = {}", family,
                                              model.patch_size));
  }
  if (model.shares_norm()) {
    throw user_error("hf.export",
                     fmt::format("{} has no parallel block, and this model has model.parallel_block = true", family));
  }
  if (!model.gated() && has_window(model)) {
    throw user_error("hf.export", fmt::format("{} attends to all tokens before, and this model has model.window = {}",
                                              family, model.window));
  }
  if (!model.gated() && model.head_dim() * model.heads != model.hidden) {
    throw user_error("hf.export",
                     fmt::format("heads of {} share the width of the model, and this one has {} of {} for {}", family,
                                 model.heads, model.head_dim(), model.hidden));
  }
  const auto* relative = std::ranges::find_if(kRelatives, [&](const Relative& r) { return computes(r, model); });
  if (model.is_neox()) relative = &kNeox;
  if (!model.is_gpt() && relative == std::end(kRelatives)) {
    throw user_error(
        "hf.export",
        fmt::format("no model of transformers that we know has at once model.qkv_bias = {}, out_bias = {},"
                    " mlp_bias = {}, qk_norm = {}, window = {}, rotary_dim = {}, rotary_scaling = {}, experts = {},"
                    " shared_experts = {}, router = {}, router_bias = {}, router_normalized = {} and dense_layers = "
                    "'{}'",
                    model.qkv_bias, model.out_bias, model.mlp_bias, model.qk_norm, model.window, model.rotary_dim,
                    model.rotary_scaling, model.experts, model.shared_experts, model.router, model.router_bias,
                    model.router_normalized, model.dense_layers),
        "export as Llama (biases), Mistral (window), Qwen2 (qkv_bias, window), Qwen3 (qk_norm, window),"
        " Phi-3 (rotary_dim, window), Mixtral (experts, window), Qwen2-MoE (experts, shared_expert_gate, qkv_bias, "
        "window), Qwen3-MoE"
        " (experts, qk_norm, window) or dots.llm1 (experts, shared_experts, qk_norm, router = sigmoid, router_bias)");
  }
  const std::string gelu(model.exact_gelu ? kExactGelu : "gelu_new");
  Json config;
  config["architectures"] = {std::string(model.is_gpt() ? "GPT2LMHeadModel" : relative->class_name)};
  config["model_type"] = std::string(model.is_gpt() ? kGpt2 : relative->type);
  config["vocab_size"] = model.vocab;
  if (model.is_gpt()) {
    config["n_positions"] = model.seq;
    config["n_embd"] = model.hidden;
    config["n_layer"] = model.layers;
    config["n_head"] = model.heads;
    config["n_inner"] = model.ffn();
    config["activation_function"] = gelu;
    config["layer_norm_epsilon"] = model.norm_eps;
    for (const char* dropout : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) config[dropout] = 0.0;
  } else if (model.is_neox()) {
    config["hidden_size"] = model.hidden;
    config["intermediate_size"] = model.ffn();
    config["num_hidden_layers"] = model.layers;
    config["num_attention_heads"] = model.heads;
    config["max_position_embeddings"] = model.seq;
    config["hidden_act"] = gelu;
    config["layer_norm_eps"] = model.norm_eps;
    config["use_parallel_residual"] = model.parallel_block;
    config["attention_bias"] = true;
    config["rotary_pct"] = rotary_share(model);
    config["rotary_emb_base"] = model.rotary_base;
    config["rope_scaling"] = rope_scaling(model);
    for (const char* dropout : {"attention_dropout", "hidden_dropout"}) config[dropout] = 0.0;
  } else {
    config["hidden_size"] = model.hidden;
    config["intermediate_size"] = model.ffn();
    config["num_hidden_layers"] = model.layers;
    config["num_attention_heads"] = model.heads;
    config["num_key_value_heads"] = model.kv();
    config["head_dim"] = model.head_dim();
    config["max_position_embeddings"] = model.seq;
    config["hidden_act"] = "silu";
    config["rms_norm_eps"] = model.norm_eps;
    config["rope_theta"] = model.rotary_base;
    config["rope_scaling"] = rope_scaling(model);
    if (relative->reads_partial_rotary) config["partial_rotary_factor"] = rotary_share(model);
    config["attention_dropout"] = 0.0;
    if (relative->reads_attention_bias) config["attention_bias"] = model.qkv_bias;
    if (relative->reads_mlp_bias) config["mlp_bias"] = model.mlp_bias;
    if (relative->window != Relative::Window::never) {
      config["sliding_window"] = has_window(model) ? Json(model.window) : Json();
    }
    if (relative->experts) write_experts(*relative->experts, model, config);
    if (relative->window == Relative::Window::flagged_for_all) config["use_sliding_window"] = has_window(model);
    if (has_window_layers(*relative)) {
      config["use_sliding_window"] = has_window(model);
      config["layer_types"] = Json::array();
      for (std::int64_t i = 0; i < model.layers; ++i)
        config["layer_types"].push_back(std::string(has_window(model) ? kSliding : kFull));
      config["max_window_layers"] = has_window(model) ? 0 : model.layers;
    }
  }
  config["tie_word_embeddings"] = model.tied_embeddings;
  config["initializer_range"] = model.init_std;
  // The defaults there are ids of other people's vocabularies.
  for (const char* token : {"bos_token_id", "eos_token_id"}) config[token] = nullptr;
  config.update(token_ids);
  config["torch_dtype"] = dtype == tensor::DType::bf16 ? "bfloat16" : "float32";
  config["use_cache"] = true;
  return config.dump(2) + "\n";
}

}  // namespace ms::hf
