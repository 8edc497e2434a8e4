#include "hf/model_json.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "hf/json_value.h"
#include "hf/problems.h"

namespace ms::hf {
namespace {

// The values of a config.json key that match what we compute. Keys that are neither here nor read below do not change
// the logits: these two classes of transformers do not read them.
struct Required {
  std::string_view key;
  std::vector<Json> values;  // any of these; absent and null are always fine
};
const std::vector<Required>& required_of(bool gpt) {
  static const std::vector<Required> kGpt2 = {
      {"activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}},  // one formula: GELU in its tanh form
      {"scale_attn_weights", {true}},
      {"scale_attn_by_inverse_layer_idx", {false}},
      {"add_cross_attention", {false}},
      {"is_encoder_decoder", {false}},
      {"pruned_heads", {Json::object()}},
      {"quantization_config", {}},
      {"auto_map", {}},
  };
  static const std::vector<Required> kLlama = {
      {"hidden_act", {"silu", "swish"}},
      {"attention_bias", {false}},
      {"mlp_bias", {false}},
      {"sliding_window", {}},
      {"rope_scaling", {}},
      {"partial_rotary_factor", {1.0}},
      {"is_encoder_decoder", {false}},
      {"pruned_heads", {Json::object()}},
      {"quantization_config", {}},
      {"auto_map", {}},
  };
  return gpt ? kGpt2 : kLlama;
}

// Reads keys of an object; what is wrong with them is collected.
class Reader {
 public:
  Reader(const Json& object, Problems& problems) : object_(object), problems_(problems) {}

  std::int64_t integer(std::string_view key, std::optional<std::int64_t> fallback = {}) {
    return get<std::int64_t>(key, fallback, "a whole number",
                             [](const Json& value) { return value.is_number_integer(); });
  }
  double number(std::string_view key, double fallback) {
    return get<double>(key, fallback, "a number", [](const Json& value) { return value.is_number(); });
  }
  bool boolean(std::string_view key, bool fallback) {
    return get<bool>(key, fallback, "true or false", [](const Json& value) { return value.is_boolean(); });
  }
  // null where it is absent.
  const Json& at(std::string_view key) const {
    static const Json kNull;
    const Json* value = object_.find(key);
    return value == nullptr ? kNull : *value;
  }
  void require(const Required& rule) {
    const Json& value = at(rule.key);
    if (value.is_null() || std::find(rule.values.begin(), rule.values.end(), value) != rule.values.end()) return;
    std::vector<std::string> supported;
    for (const Json& each : rule.values) supported.push_back(each.dump());
    problems_.add(fmt::format("{} = {} is not supported, only {}", rule.key, plain_text(value.dump(), 120),
                              supported.empty() ? "models without it" : fmt::format("{}", fmt::join(supported, ", "))));
  }

 private:
  template <class T, class Is>
  T get(std::string_view key, std::optional<T> fallback, std::string_view what, Is is) {
    const Json& value = at(key);
    if (!value.is_null() && is(value)) return value.get<T>();
    if (!value.is_null()) problems_.add(fmt::format("{} = {} is not {}", key, shown(value, 120), what));
    if (value.is_null() && !fallback) problems_.add(fmt::format("{} is missing", key));
    return fallback.value_or(T{1});
  }
  const Json& object_;
  Problems& problems_;
};

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
  return model;
}

nn::ModelConfig llama(Reader& read, Problems& problems) {
  nn::ModelConfig model;
  model.family = "llama";
  model.layers = read.integer("num_hidden_layers");
  model.hidden = read.integer("hidden_size");
  model.heads = read.integer("num_attention_heads");
  model.kv_heads = read.integer("num_key_value_heads", model.heads);
  model.ffn_hidden = read.integer("intermediate_size");
  model.vocab = read.integer("vocab_size");
  model.seq = read.integer("max_position_embeddings", 2048);
  model.tied_embeddings = read.boolean("tie_word_embeddings", false);
  model.norm_eps = read.number("rms_norm_eps", 1e-6);
  model.init_std = read.number("initializer_range", 0.02);
  model.rotary_base = read.number("rope_theta", 10000);
  const std::int64_t head_dim = read.integer("head_dim", 0);
  if (head_dim != 0 && model.heads > 0 && head_dim != model.hidden / model.heads) {
    problems.add(fmt::format("head_dim = {}, but ours is hidden_size / num_attention_heads = {}", head_dim,
                             model.hidden / model.heads));
  }
  // Since version 5 of transformers an object says all about rotary positions.
  const Json& rope = read.at("rope_parameters");
  if (rope.is_object()) {
    Reader parameters(rope, problems);
    parameters.require({"rope_type", {"default"}});
    parameters.require({"partial_rotary_factor", {1.0}});
    model.rotary_base = parameters.number("rope_theta", model.rotary_base);
  } else if (!rope.is_null()) {
    problems.add("rope_parameters is not an object");
  }
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
  if (type != "gpt2" && type != "llama") {
    problems.add(fmt::format("model_type = {}, we have gpt2 and llama", shown(type, 80)));
    problems.throw_if_any();
  }
  const bool gpt = type == "gpt2";
  for (const Required& rule : required_of(gpt)) read.require(rule);
  const nn::ModelConfig model = gpt ? gpt2(read) : llama(read, problems);
  if (problems.empty()) check_ranges(model, problems);
  if (problems.empty()) {  // rules between fields divide by them
    for (const nn::ModelProblem& problem : nn::check_model(model, {}, 1)) problems.add(problem.message);
  }
  problems.throw_if_any();
  return model;
}

std::string config_json(const nn::ModelConfig& model, tensor::DType dtype) {
  if (model.is_gpt() && model.kv() != model.heads) {
    throw user_error("hf.export", fmt::format("GPT-2 has no grouped-query attention, and this model has {} heads for {}"
                                              " of keys and values",
                                              model.heads, model.kv()));
  }
  if (model.parallel_block) {
    throw user_error("hf.export",
                     fmt::format("{} has no parallel block, and this model has model.parallel_block = true",
                                 model.is_gpt() ? "GPT-2" : "Llama"));
  }
  if (model.window != 0 && model.window < model.seq) {
    throw user_error("hf.export", fmt::format("{} attends to all tokens before, and this model has model.window = {}",
                                              model.is_gpt() ? "GPT-2" : "Llama", model.window));
  }
  Json config;
  config["architectures"] = {model.is_gpt() ? "GPT2LMHeadModel" : "LlamaForCausalLM"};
  config["model_type"] = model.is_gpt() ? "gpt2" : "llama";
  config["vocab_size"] = model.vocab;
  if (model.is_gpt()) {
    config["n_positions"] = model.seq;
    config["n_embd"] = model.hidden;
    config["n_layer"] = model.layers;
    config["n_head"] = model.heads;
    config["n_inner"] = model.ffn();
    config["activation_function"] = "gelu_new";
    config["layer_norm_epsilon"] = model.norm_eps;
    for (const char* dropout : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) config[dropout] = 0.0;
  } else {
    config["hidden_size"] = model.hidden;
    config["intermediate_size"] = model.ffn();
    config["num_hidden_layers"] = model.layers;
    config["num_attention_heads"] = model.heads;
    config["num_key_value_heads"] = model.kv();
    config["max_position_embeddings"] = model.seq;
    config["hidden_act"] = "silu";
    config["rms_norm_eps"] = model.norm_eps;
    config["rope_theta"] = model.rotary_base;
    config["rope_scaling"] = nullptr;
    config["attention_bias"] = false;
    config["attention_dropout"] = 0.0;
    config["mlp_bias"] = false;
  }
  config["tie_word_embeddings"] = model.tied_embeddings;
  config["initializer_range"] = model.init_std;
  // The defaults there are ids of other people's vocabularies.
  for (const char* token : {"bos_token_id", "eos_token_id"}) config[token] = nullptr;
  config["torch_dtype"] = dtype == tensor::DType::bf16 ? "bfloat16" : "float32";
  config["use_cache"] = true;
  return config.dump(2) + "\n";
}

std::string to_toml(const nn::ModelConfig& model) {
  nn::ModelConfig copy = model;
  ConfigSchema schema;
  schema.section("model", "What is trained.", copy, nn::kModelFields);
  return schema.dump(false);
}

}  // namespace ms::hf
