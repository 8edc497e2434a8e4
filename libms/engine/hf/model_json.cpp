#include "hf/model_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "hf/config_reader.h"
#include "hf/json_value.h"
#include "hf/problems.h"
#include "hf/relatives.h"

namespace ms::hf {
namespace {

const std::vector<Required>& required_of(const Json& type) {
  static const std::vector<Required> kOfGpt2 = {
      {"activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", kExactGelu}},
      {"scale_attn_weights", {true}},
      {"scale_attn_by_inverse_layer_idx", {false}},
      {"add_cross_attention", {false}},
      {"is_encoder_decoder", {false}},
      {"pruned_heads", {Json::object()}},
      {"quantization_config", {}},
      {"auto_map", {}},
  };
  static const std::vector<Required> kOfNeox = {
      {"hidden_act", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", kExactGelu}},
      {"attention_bias", {true}},
      {"is_encoder_decoder", {false}},
      {"quantization_config", {}},
      {"pruned_heads", {Json::object()}},
      {"auto_map", {}},
  };
  static const std::vector<Required> kLlama = {
      {"hidden_act", {"silu", "swish"}},
      {"is_encoder_decoder", {false}},
      {"quantization_config", {}},
      {"pruned_heads", {Json::object()}},
      {"auto_map", {}},
  };
  return type == Json(kGpt2) ? kOfGpt2 : type == Json(kNeox.type) ? kOfNeox : kLlama;
}

// A GELU that config.json does not name is the one of the family.
bool is_exact_gelu(Reader& read, std::string_view key, std::string_view fallback) {
  const Json& name = read.at(key);
  return name.is_null() ? fallback == kExactGelu : name == Json(kExactGelu);
}

nn::ModelConfig gpt2(Reader& read) {
  nn::ModelConfig model;
  model.family = "gpt";
  model.layers = read.integer("n_layer");
  model.hidden = read.integer("n_embd");
  model.heads = read.integer("n_head");
  model.ffn_hidden = read.integer("n_inner", 0);
  model.vocab = read.integer("vocab_size");
  model.seq = read.integer("n_positions");
  model.tied_embeddings = read.boolean("tie_word_embeddings", true);
  model.norm_eps = read.number("layer_norm_epsilon", 1e-5);
  model.init_std = read.number("initializer_range", 0.02);
  model.exact_gelu = is_exact_gelu(read, "activation_function", "gelu_new");
  return model;
}

// YaRN's factor of rotated queries and keys, as DeepSeek's models state it: a quotient of two.
double yarn_magnitude(double factor, double mscale, double mscale_all_dim) {
  const auto of = [&](double scale) { return 0.1 * scale * std::log(factor) + 1; };
  return of(mscale) / of(mscale_all_dim);
}

void read_yarn(Reader& rope, nn::ModelConfig& model) {
  rope.require({"truncate", {true}});
  model.rotary_low_freq = rope.number("beta_slow", 1);
  model.rotary_high_freq = rope.number("beta_fast", 32);
  model.rotary_original_seq = rope.integer("original_max_position_embeddings", model.seq);
  model.rotary_attention_factor = rope.number("attention_factor", 0);
  const double mscale = rope.number("mscale", 0), all = rope.number("mscale_all_dim", 0);
  if (model.rotary_attention_factor == 0 && mscale != 0 && all != 0)
    model.rotary_attention_factor = yarn_magnitude(model.rotary_factor, mscale, all);
}

// Reads a share of a head's elements, where the family has it.
void read_partial_rotary(Reader& read, const Relative& relative, nn::ModelConfig& model, Problems& problems,
                         std::string_view key = "partial_rotary_factor") {
  if (!relative.reads_partial_rotary) return read.require({key, {1.0}});
  const auto size = static_cast<double>(model.head_dim());
  const double factor = read.number(key, static_cast<double>(model.rotary()) / size);
  if (!(factor > 0 && factor <= 1))
    return problems.add(fmt::format("{} = {} is not above 0 and at most 1", key, factor));
  const double elements = factor * size;
  model.rotary_dim = elements == size ? 0 : std::max<std::int64_t>(static_cast<std::int64_t>(elements), 1);
}

// Reads rope_scaling, or, since version 5 of transformers, rope_parameters, which says all about rotary positions.
void read_rotary(const Json& object, std::string_view key, const Relative& relative, nn::ModelConfig& model,
                 Problems& problems) {
  if (object.is_null()) return;
  if (!object.is_object()) return problems.add(fmt::format("{} is not an object", key));
  for (const auto& [name, value] : object.items()) {
    if (value.is_object())
      problems.add(fmt::format("{} by layer type ({}) is not supported", key, plain_text(name, 80)));
  }
  Reader rope(object, problems);
  model.rotary_base = rope.number("rope_theta", model.rotary_base);
  read_partial_rotary(rope, relative, model, problems);
  const std::string_view type_key = rope.at("rope_type").is_null() ? "type" : "rope_type";
  if (relative.type == "phi3") {  // which takes "yarn" for longrope
    rope.require({type_key, {"default"}});
  } else {
    rope.require({type_key, {"default", "linear", "llama3", "yarn"}});
  }
  const Json& type = rope.at(type_key);
  if (type != "linear" && type != "llama3" && type != "yarn") return;
  model.rotary_scaling = type.get<std::string>();
  model.rotary_factor = rope.number("factor");
  if (type == "linear") return;
  if (type == "yarn") return read_yarn(rope, model);
  model.rotary_low_freq = rope.number("low_freq_factor");
  model.rotary_high_freq = rope.number("high_freq_factor");
  model.rotary_original_seq = rope.integer("original_max_position_embeddings");
}

// The layers without a window.
std::int64_t full_layers(Reader& read, const Relative& relative, const nn::ModelConfig& model, Problems& problems) {
  if (const Json& types = read.at("layer_types"); types.is_array()) {
    const std::int64_t full = std::count(types.begin(), types.end(), Json(kFull)),
                       sliding = std::count(types.begin(), types.end(), Json(kSliding));
    if (full + sliding != model.layers || std::ssize(types) != model.layers)
      problems.add(fmt::format("layer_types is not a list of {} times {} or {}", model.layers, kFull, kSliding));
    return std::min(full, model.layers);
  }
  if (!has_window_layers(relative)) return 0;
  const std::int64_t first = std::clamp<std::int64_t>(read.integer("max_window_layers", relative.default_window_layers),
                                                      0, std::max<std::int64_t>(model.layers, 0));
  return relative.window == Relative::Window::flagged_alternating ? model.layers - (first + 1) / 2 : first;
}

// The window that all layers have; 0: none.
std::int64_t read_window(Reader& read, const Relative& relative, const nn::ModelConfig& model, Problems& problems) {
  if (relative.window == Relative::Window::never) {
    read.require({"sliding_window", {}});
    return 0;
  }
  const bool has_flag = relative.window != Relative::Window::read && relative.window != Relative::Window::unflagged;
  if (has_flag && !read.boolean("use_sliding_window", false)) return 0;
  if (read.has_null("sliding_window")) return 0;
  const std::int64_t window = read.integer("sliding_window", relative.default_window);
  const std::int64_t full = full_layers(read, relative, model, problems);
  if (window < model.seq && window != 0 && full > 0 && full < model.layers) {
    problems.add(fmt::format("{} of {} layers have a sliding window, and ours have one in all or in none",
                             model.layers - full, model.layers));
  }
  return full > 0 || window >= model.seq ? 0 : window;
}

// The layers without experts, as ModelConfig::dense_layers lists them.
std::string read_dense_layers(Reader& read, std::int64_t layers, Problems& problems) {
  constexpr std::int64_t kMostLayers = 10000;  // of [model]; more are refused with the other ranges
  const std::int64_t step = read.integer("decoder_sparse_step", 1);
  if (step < 1) problems.add(fmt::format("decoder_sparse_step = {} is not at least 1", step));
  std::vector<std::int64_t> dense;
  const Json& listed = read.at("mlp_only_layers");
  if (!listed.is_null() && !listed.is_array()) problems.add("mlp_only_layers is not a list");
  for (std::int64_t i = 0; i < std::min(layers, kMostLayers) && step >= 1; ++i) {
    const bool is_listed = listed.is_array() && std::find(listed.begin(), listed.end(), Json(i)) != listed.end();
    if (is_listed || (i + 1) % step != 0) dense.push_back(i);
  }
  return nn::layer_list(dense);
}

// Reads the router, the shared experts and the first dense layers of DeepSeek-V3.
void read_deepseek(Reader& read, nn::ModelConfig& model) {
  model.router = "sigmoid";
  model.router_bias = true;
  model.router_groups = read.integer("n_group", 1);
  model.router_groups_per_token = read.integer("topk_group", 1);
  model.router_scale = read.number("routed_scaling_factor", 1);
  model.shared_experts = read.integer("n_shared_experts");
  const std::int64_t dense = std::min(read.integer("first_k_dense_replace", 0), model.layers);
  if (dense > 0) model.dense_layers = dense == 1 ? "0" : fmt::format("0-{}", dense - 1);
}

void read_experts(Reader& read, const Relative::Experts& of, nn::ModelConfig& model, Problems& problems) {
  const auto integer = [&](std::string_view key, std::int64_t fallback) {
    return read.integer(key, fallback > 0 ? std::optional(fallback) : std::nullopt);
  };
  // Since version 5 transformers writes one key for all families.
  model.experts = integer(read.at(of.count_key).is_null() ? Relative::Experts::kCommonKey : of.count_key, of.count);
  model.experts_per_token = integer("num_experts_per_tok", of.per_token);
  if (of.width > 0) model.expert_ffn_hidden = read.integer(of.width_key, of.width);
  if (of.reads_normalized) model.router_normalized = read.boolean("norm_topk_prob", false);
  if (of.has_dense_layers) model.dense_layers = read_dense_layers(read, model.layers, problems);
  if (of.is_deepseek) read_deepseek(read, model);
  if (of.shared_width == 0) return;
  const std::int64_t width = read.integer(kSharedWidth, of.shared_width), each = model.expert_ffn();
  if (each < 1 || width % each != 0)
    problems.add(fmt::format("{} = {} is not a multiple of {} = {}", kSharedWidth, width, of.width_key, each));
  model.shared_experts = each < 1 ? 0 : width / each;
  model.shared_expert_gate = true;
}

nn::ModelConfig llama(Reader& read, const Relative& relative, Problems& problems) {
  nn::ModelConfig model;
  model.family = "llama";
  model.layers = read.integer("num_hidden_layers");
  model.hidden = read.integer("hidden_size");
  model.heads = read.integer("num_attention_heads");
  model.kv_heads = read.integer("num_key_value_heads", relative.kv_heads == 0 ? model.heads : relative.kv_heads);
  model.ffn_hidden = read.integer("intermediate_size");
  model.vocab = read.integer("vocab_size");
  model.seq = read.integer("max_position_embeddings", relative.seq);
  model.tied_embeddings = read.boolean("tie_word_embeddings", false);
  model.norm_eps = read.number("rms_norm_eps", relative.norm_eps);
  model.init_std = read.number("initializer_range", 0.02);
  model.rotary_base = read.number("rope_theta", relative.rotary_base);
  model.head_size = read.integer("head_dim", relative.head_dim);
  if (model.heads > 0 && model.head_size * model.heads == model.hidden) model.head_size = 0;
  const bool attention_bias = relative.reads_attention_bias && read.boolean("attention_bias", false);
  if (relative.reads_qkv_bias) read.require({"qkv_bias", {true}});
  model.qkv_bias = relative.qkv_bias || attention_bias;
  model.out_bias = attention_bias;
  model.mlp_bias = relative.reads_mlp_bias && read.boolean("mlp_bias", false);
  model.qk_norm = relative.qk_norm;
  if (relative.experts) read_experts(read, *relative.experts, model, problems);
  model.window = read_window(read, relative, model, problems);
  if (model.heads > 0) read_partial_rotary(read, relative, model, problems);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (model.heads > 0) read_rotary(read.at(key), key, relative, model, problems);
  }
  return model;
}

nn::ModelConfig neox(Reader& read, Problems& problems) {
  nn::ModelConfig model;
  model.family = "neox";
  model.layers = read.integer("num_hidden_layers");
  model.hidden = read.integer("hidden_size");
  model.heads = read.integer("num_attention_heads");
  model.ffn_hidden = read.integer("intermediate_size");
  model.vocab = read.integer("vocab_size");
  model.seq = read.integer("max_position_embeddings", 2048);
  model.tied_embeddings = read.boolean("tie_word_embeddings", false);
  model.norm_eps = read.number("layer_norm_eps", 1e-5);
  model.init_std = read.number("initializer_range", 0.02);
  model.parallel_block = read.boolean("use_parallel_residual", true);
  model.exact_gelu = is_exact_gelu(read, "hidden_act", kExactGelu);
  model.rotary_base = read.number("rotary_emb_base", 10000);
  if (model.heads < 1) return model;
  model.rotary_dim = std::max<std::int64_t>(model.head_dim() / 4, 1);
  read_partial_rotary(read, kNeox, model, problems, "rotary_pct");
  for (const std::string_view key : {"rope_scaling", "rope_parameters"})
    read_rotary(read.at(key), key, kNeox, model, problems);
  return model;
}

// The ranges of [model], as a configuration file would be held to.
void check_ranges(const nn::ModelConfig& model, Problems& problems) {
  for (const Field<nn::ModelConfig>& field : nn::kModelFields) {
    std::optional<double> value;
    if (const auto* whole = std::get_if<std::int64_t nn::ModelConfig::*>(&field.member)) {
      value = static_cast<double>(model.*(*whole));
    } else if (const auto* real = std::get_if<double nn::ModelConfig::*>(&field.member)) {
      value = model.*(*real);
    }
    if (value && !(*value >= field.min && *value <= field.max)) {
      problems.add(
          fmt::format("it makes model.{} {}, which is not in {} to {}", field.key, *value, field.min, field.max));
    }
  }
}

}  // namespace

nn::ModelConfig parse_config(std::string_view text, const std::string& path) {
  std::string refusal;
  const std::optional<Json> object = Json::try_parse(text, {.max_depth = kMaxDepth}, &refusal);
  if (!object) throw user_error("hf.config", fmt::format("'{}' {}", path, refusal));
  if (!object->is_object()) throw user_error("hf.config", fmt::format("'{}' is not a JSON object", path));
  Problems problems("hf.config", fmt::format("cannot take the model of '{}'", path));
  Reader read(*object, problems);
  const Json& type = read.at("model_type");
  const bool gpt = type == Json(kGpt2), is_neox = type == Json(kNeox.type);
  const auto* relative = std::ranges::find_if(kRelatives, [&](const Relative& r) { return type == Json(r.type); });
  if (!gpt && !is_neox && relative == std::end(kRelatives)) {
    std::string known = fmt::format("{}, {}", kGpt2, kNeox.type);
    for (const Relative& r : kRelatives) known += fmt::format(", {}", r.type);
    problems.add(fmt::format("model_type = {}; known are {}", shown(type, 80), known));
    problems.throw_if_any();
  }
  for (const Required& rule : required_of(type)) read.require(rule);
  const nn::ModelConfig model = gpt ? gpt2(read) : is_neox ? neox(read, problems) : llama(read, *relative, problems);
  if (problems.empty()) check_ranges(model, problems);
  if (problems.empty()) {  // rules between fields divide by them
    for (const nn::ModelProblem& problem : nn::check_model(model, {}, 1)) problems.add(problem.message);
  }
  problems.throw_if_any();
  return model;
}

std::string to_toml(const nn::ModelConfig& model) {
  nn::ModelConfig copy = model;
  ConfigSchema schema;
  schema.section("model", "The model.", copy, nn::kModelFields);
  return schema.dump(false);
}

}  // namespace ms::hf
