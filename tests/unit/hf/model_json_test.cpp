// config.json: those of real models are understood, ours read back as the same model, and each thing that we do not
// compute is refused for its own reason.
#include "hf/model_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "support.h"

namespace ms::hf {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json gpt2_json() {
  return json::parse(R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "eos_token_id": 50256, "initializer_range": 0.03, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 6, "n_positions": 512,
    "n_inner": null, "summary_type": "cls_index", "task_specific_params": {"text-generation": {"max_length": 50}},
    "vocab_size": 50257})");
}
json llama_json() {
  return json::parse(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 8192,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 128256})");
}

TEST(ParseConfig, ReadsGpt2) {
  const nn::ModelConfig model = parse_config(gpt2_json().dump(), "config.json");
  EXPECT_EQ(model.family, "gpt");
  EXPECT_EQ(model.layers, 6);
  EXPECT_EQ(model.hidden, 768);
  EXPECT_EQ(model.heads, 12);
  EXPECT_EQ(model.kv(), 12);
  EXPECT_EQ(model.ffn(), 3072);
  EXPECT_EQ(model.vocab, 50257);
  EXPECT_EQ(model.seq, 512);
  EXPECT_TRUE(model.tied_embeddings);
  EXPECT_EQ(model.norm_eps, 1e-5);
  EXPECT_EQ(model.init_std, 0.03);
}

TEST(ParseConfig, ReadsLlama) {
  const nn::ModelConfig model = parse_config(llama_json().dump(), "config.json");
  EXPECT_EQ(model.family, "llama");
  EXPECT_EQ(model.layers, 32);
  EXPECT_EQ(model.hidden, 4096);
  EXPECT_EQ(model.heads, 32);
  EXPECT_EQ(model.kv(), 8);
  EXPECT_EQ(model.ffn(), 14336);
  EXPECT_EQ(model.vocab, 128256);
  EXPECT_EQ(model.seq, 8192);
  EXPECT_FALSE(model.tied_embeddings);
  EXPECT_EQ(model.norm_eps, 1e-5);
  EXPECT_EQ(model.rotary_base, 500000);
}

json relative_json(const char* type) {
  json config = llama_json();
  config["model_type"] = type;
  config.erase("attention_bias");
  return config;
}

TEST(ParseConfig, ReadsTheRelativesOfLlama) {
  const auto parsed = [](const char* type, const json& keys) {
    json config = relative_json(type);
    config.update(keys);
    return parse_config(config.dump(), "c");
  };
  const nn::ModelConfig qwen2 = parsed("qwen2", {{"sliding_window", 4096}, {"max_window_layers", 28}});
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.out_bias || qwen2.mlp_bias || qwen2.qk_norm);
  EXPECT_EQ(qwen2.window, 0) << "use_sliding_window is false";
  EXPECT_EQ(qwen2.head_dim(), 128);
  const json flagged = {{"use_sliding_window", true}, {"sliding_window", 100}, {"max_window_layers", 0}};
  EXPECT_EQ(parsed("qwen2", flagged).window, 100);
  json all = flagged, types = json::array();
  for (int i = 0; i < 32; ++i) types.push_back("full_attention");
  all["layer_types"] = types;
  EXPECT_EQ(parsed("qwen2", all).window, 0) << "layer_types counts";

  const nn::ModelConfig qwen3 = parsed("qwen3", {{"head_dim", nullptr}});
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.head_dim(), 128);
  EXPECT_EQ(parsed("qwen3", {{"head_dim", 64}}).head_dim(), 64);

  EXPECT_EQ(parsed("mistral", json::object()).window, 4096) << "the default there";
  EXPECT_EQ(parsed("mistral", {{"sliding_window", nullptr}}).window, 0);
  EXPECT_EQ(parsed("mistral", {{"sliding_window", 8192}}).window, 0) << "as long as a sequence";
  EXPECT_FALSE(parsed("mistral", {{"attention_bias", true}}).qkv_bias) << "Mistral does not read it";

  const nn::ModelConfig mixtral = parsed("mixtral", {{"num_local_experts", nullptr}, {"sliding_window", nullptr}});
  EXPECT_EQ(mixtral.experts, 8) << "the default there";
  EXPECT_EQ(mixtral.experts_per_token, 2);
  EXPECT_EQ(mixtral.expert_ffn(), 14336);
  EXPECT_TRUE(mixtral.router_normalized);
  const nn::ModelConfig qwen3_moe =
      parsed("qwen3_moe", {{"num_experts", 16}, {"moe_intermediate_size", 100}, {"norm_topk_prob", true}});
  EXPECT_EQ(qwen3_moe.experts, 16);
  EXPECT_EQ(qwen3_moe.experts_per_token, 8);
  EXPECT_EQ(qwen3_moe.expert_ffn(), 100);
  EXPECT_TRUE(qwen3_moe.router_normalized && qwen3_moe.qk_norm);
  EXPECT_FALSE(parsed("qwen3_moe", json::object()).router_normalized);
  EXPECT_EQ(parsed("qwen3_moe", {{"use_sliding_window", true}, {"sliding_window", 100}}).window, 100);
  const nn::ModelConfig qwen2_moe = parsed("qwen2_moe", json::object());
  EXPECT_EQ(qwen2_moe.experts, 60);
  EXPECT_EQ(qwen2_moe.shared_experts, 4) << "5632 of 1408";
  EXPECT_TRUE(qwen2_moe.shared_expert_gate && qwen2_moe.qkv_bias && !qwen2_moe.qk_norm);
  EXPECT_THAT(thrown_by([&] {
                parsed("qwen2_moe", {{"shared_expert_intermediate_size", 1500}});
              }).message(),
              HasSubstr("is not a multiple of moe_intermediate_size = 1408"));

  const nn::ModelConfig biased = parsed("llama", {{"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_TRUE(biased.qkv_bias && biased.out_bias && biased.mlp_bias);
}

TEST(ParseConfig, ReadsRotaryScaling) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 32.0},
                       {"low_freq_factor", 1.5},
                       {"high_freq_factor", 4.5},
                       {"original_max_position_embeddings", 4096}};
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    json config = llama_json();
    config[key] = llama3;
    const nn::ModelConfig model = parse_config(config.dump(), "c");
    EXPECT_EQ(model.rotary_scaling, "llama3");
    EXPECT_EQ(model.rotary_factor, 32);
    EXPECT_EQ(model.rotary_low_freq, 1.5);
    EXPECT_EQ(model.rotary_high_freq, 4.5);
    EXPECT_EQ(model.rotary_original_seq, 4096);
    EXPECT_EQ(model.rotary_base, 500000);
  }
  json config = llama_json();
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  const nn::ModelConfig linear = parse_config(config.dump(), "c");
  EXPECT_EQ(linear.rotary_scaling, "linear");
  EXPECT_EQ(linear.rotary_factor, 2);

  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const nn::ModelConfig yarn = parse_config(config.dump(), "c");
  EXPECT_EQ(yarn.rotary_scaling, "yarn");
  EXPECT_EQ(yarn.rotary_low_freq, 1);
  EXPECT_EQ(yarn.rotary_high(), 32);
  EXPECT_EQ(yarn.rotary_original_seq, 32768);
  EXPECT_DOUBLE_EQ(yarn.rotary_magnitude(), 0.1 * std::log(4.0) + 1);
  config["rope_scaling"].update({{"mscale", 1.0}, {"mscale_all_dim", 1.0}});
  EXPECT_EQ(parse_config(config.dump(), "c").rotary_magnitude(), 1) << "as in DeepSeek-V3";
  config["rope_scaling"]["attention_factor"] = 1.5;
  EXPECT_EQ(parse_config(config.dump(), "c").rotary_magnitude(), 1.5);
}

TEST(ParseConfig, ReadsTheRotatedShareOfPhi3) {
  json config = relative_json("phi3");
  EXPECT_EQ(parse_config(config.dump(), "c").rotary(), 128);
  config["partial_rotary_factor"] = 0.75;
  EXPECT_EQ(parse_config(config.dump(), "c").rotary_dim, 96);
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7.0}};
  EXPECT_EQ(parse_config(config.dump(), "c").rotary_dim, 96) << "it is said beside them";
  config.erase("partial_rotary_factor");
  config["rope_parameters"]["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(parse_config(config.dump(), "c").rotary_dim, 64);
}

// A key set to a value (null takes it away), in one of the two.
struct Change {
  const char* family;
  const char* key;
  json value;
  const char* outcome;
};

json changed(const Change& change) {
  json config = std::string_view(change.family) == "gpt2" ? gpt2_json() : relative_json(change.family);
  if (std::string_view(change.family) == "qwen2") config["use_sliding_window"] = true;
  if (change.value.is_null()) {
    config.erase(change.key);
  } else {
    config[change.key] = change.value;
  }
  return config;
}

TEST(ParseConfig, KnowsTheDefaultsOfTransformers) {
  const auto parsed = [](const Change& change) { return parse_config(changed(change).dump(), "config.json"); };
  EXPECT_EQ(parsed({"llama", "num_key_value_heads", nullptr, ""}).kv(), 32);
  EXPECT_EQ(parsed({"llama", "rms_norm_eps", nullptr, ""}).norm_eps, 1e-6);
  EXPECT_EQ(parsed({"llama", "rope_theta", nullptr, ""}).rotary_base, 10000);
  EXPECT_EQ(parsed({"llama", "max_position_embeddings", nullptr, ""}).seq, 2048);
  EXPECT_FALSE(parsed({"llama", "tie_word_embeddings", nullptr, ""}).tied_embeddings);
  EXPECT_FALSE(parsed({"gpt2", "tie_word_embeddings", false, ""}).tied_embeddings);
  EXPECT_EQ(parsed({"gpt2", "n_inner", 100, ""}).ffn(), 100);
  EXPECT_EQ(parsed({"llama", "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}}, ""}).rotary_base, 7);
  EXPECT_EQ(parsed({"llama", "head_dim", 128, ""}).head_dim(), 128);
  EXPECT_FALSE(parsed({"gpt2", "activation_function", "gelu_pytorch_tanh", ""}).exact_gelu);
  EXPECT_TRUE(parsed({"gpt2", "activation_function", "gelu", ""}).exact_gelu);
}

TEST(ParseConfig, RefusesWhatWeDoNotCompute) {
  const Change cases[] = {
      {"gpt2", "model_type", "bert", R"(model_type = "bert"; known are gpt2, gpt_neox, llama, mistral, qwen2, qwen3)"},
      {"gpt2", "model_type", nullptr, "model_type = null"},
      {"gpt2", "activation_function", "swish", R"(activation_function = "swish" is not supported, only "gelu_new", )"},
      {"gpt2", "activation_function", "relu", "activation_function"},
      {"gpt2", "scale_attn_weights", false, "scale_attn_weights = false is not supported, only true"},
      {"gpt2", "scale_attn_by_inverse_layer_idx", true, "scale_attn_by_inverse_layer_idx"},
      {"gpt2", "add_cross_attention", true, "add_cross_attention"},
      {"gpt2", "pruned_heads", {{"1", {2}}}, "pruned_heads"},
      {"gpt2", "quantization_config", {{"bits", 4}}, "quantization_config"},
      {"gpt2", "n_embd", 100, "model.hidden = 100 is not divisible by model.heads = 12"},
      {"gpt2", "n_embd", nullptr, "n_embd is missing"},
      {"gpt2", "n_embd", "768", R"(n_embd = "768" is not a whole number)"},
      {"gpt2", "n_embd", 768.0, "n_embd = 768.0 is not a whole number"},
      {"gpt2", "n_embd", std::uint64_t{1} << 63, "n_embd = 9223372036854775808 is not a whole number below 2^63"},
      {"llama",
       "rope_scaling",
       {{"rope_type", "llama3"}, {"original_max_position_embeddings", ~std::uint64_t{0}}},
       "original_max_position_embeddings = 18446744073709551615 is not a whole number below 2^63"},
      {"gpt2", "n_layer", 0, "model.layers 0"},
      {"gpt2", "n_head", 0, "model.heads 0"},
      {"gpt2", "n_layer", -1, "model.layers -1"},
      {"gpt2", "vocab_size", 1, "model.vocab 1"},
      {"gpt2", "layer_norm_epsilon", -1, "model.norm_eps -1"},
      {"gpt2", "layer_norm_epsilon", true, "layer_norm_epsilon = true is not a number"},
      {"gpt2", "tie_word_embeddings", 1, "tie_word_embeddings = 1 is not true or false"},
      {"llama",
       "rope_parameters",
       {{"full_attention", {{"rope_theta", 5e5}}}},
       "rope_parameters by layer type (full_attention) is not supported"},
      {"llama", "hidden_act", "gelu", "hidden_act"},
      {"llama", "attention_bias", 1, "attention_bias = 1 is not true or false"},
      {"llama", "sliding_window", 4096, "sliding_window = 4096 is not supported, only models without it"},
      {"llama", "rope_scaling", {{"type", "dynamic"}, {"factor", 2}}, R"(type = "dynamic" is not supported)"},
      {"llama", "rope_scaling", {{"type", "linear"}}, "factor is missing"},
      {"llama", "rope_scaling", {{"rope_type", "llama3"}, {"factor", 2.0}}, "low_freq_factor is missing"},
      {"mistral", "sliding_window", "wide", "sliding_window = \"wide\" is not a whole number"},
      {"qwen2", "layer_types", {"full_attention", "sliding_attention"}, "have a sliding window"},
      {"llama", "rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 7.0}}, "factor is missing"},
      {"llama",
       "rope_scaling",
       {{"type", "yarn"}, {"factor", 2.0}, {"truncate", false}},
       "truncate = false is not supported, only true"},
      {"phi3", "rope_scaling", {{"type", "longrope"}, {"factor", 2.0}}, R"("longrope" is not supported)"},
      {"phi3", "rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}, R"("yarn" is not supported, only "default")"},
      {"phi3", "partial_rotary_factor", 0.51, "model.rotary_dim = 65 is not an even number of the 128 elements"},
      {"phi3", "partial_rotary_factor", 2.0, "partial_rotary_factor = 2 is not above 0 and at most 1"},
      {"phi3", "partial_rotary_factor", 1e300, "partial_rotary_factor = 1e+300 is not above 0"},
      {"phi3", "partial_rotary_factor", -1e300, "is not above 0 and at most 1"},
      {"phi3", "partial_rotary_factor", 0, "partial_rotary_factor = 0 is not above 0"},
      {"llama", "rope_parameters", 3, "rope_parameters is not an object"},
      {"llama", "partial_rotary_factor", 0.5, "partial_rotary_factor"},
      {"llama", "head_dim", 63, "model.head_dim = 63"},
      {"llama", "head_dim", 512, "model.head_dim 512, which is not in 0 to 256"},
      {"llama", "num_attention_heads", 0, "model.heads 0"},
      {"llama", "num_key_value_heads", 5, "not divisible by model.kv_heads = 5"},
      {"llama", "auto_map", {{"AutoModel", "evil.py"}}, "auto_map"},
  };
  for (const Change& c : cases) {
    const Error error = thrown_by([&] { parse_config(changed(c).dump(), "dir/config.json"); });
    EXPECT_EQ(error.kind(), "hf.config") << c.outcome;
    EXPECT_EQ(error.blame(), Blame::user) << c.outcome;
    EXPECT_THAT(error.message(), HasSubstr(c.outcome));
    EXPECT_THAT(error.message(), HasSubstr("dir/config.json"));
  }
}

TEST(ParseConfig, TellsAllProblemsAtOnce) {
  json config = llama_json();
  config["sliding_window"] = 7;
  config["rope_scaling"] = {{"type", "dynamic"}};
  config.erase("vocab_size");
  const std::string message = thrown_by([&] { parse_config(config.dump(), "c"); }).message();
  for (const char* part : {"sliding_window", "dynamic", "vocab_size is missing"}) EXPECT_THAT(message, HasSubstr(part));
}

TEST(ParseConfig, RefusesTextsThatAreNotAnObject) {
  for (const char* text : {"", "{"}) {
    EXPECT_THAT(thrown_by([&] { parse_config(text, "c"); }).message(), HasSubstr("'c' is not JSON: "));
  }
  for (const char* text : {"[]", "3"}) {
    EXPECT_EQ(thrown_by([&] { parse_config(text, "c"); }).message(), "'c' is not a JSON object");
  }
}

TEST(ParseConfig, RefusesDeepNesting) {
  const std::string brackets(200'000, '['), closed = brackets + std::string(brackets.size(), ']');
  for (const std::string& value : {brackets, closed}) {
    for (const std::string key : {"model_type", "weather"}) {
      const Error error = thrown_by([&] { parse_config("{\"" + key + "\":" + value + "}", "c"); });
      EXPECT_EQ(error.kind(), "hf.config");
      EXPECT_EQ(error.message(), "'c' nests more than 32 deep");
    }
  }
  const auto nested = [](std::size_t lists) {  // in the object, which is one level
    return thrown_by([&] {
             parse_config(R"({"model_type":)" + std::string(lists, '[') + std::string(lists, ']') + "}", "c");
           })
        .message();
  };
  EXPECT_THAT(nested(31), HasSubstr("model_type = a list; known are gpt2"));
  EXPECT_THAT(nested(32), HasSubstr("nests more than 32 deep"));
}

TEST(ConfigJson, ReadsBackAsTheSameModel) {
  for (const char* family : kFamilies) {
    for (const bool tied : {true, false}) {
      nn::ModelConfig model = tiny(family, tied);
      const std::string text = config_json(model, tensor::DType::bf16);
      const nn::ModelConfig back = parse_config(text, "c");
      // Where these are not given, they follow from others.
      model.kv_heads = model.gated() ? model.kv() : 0, model.ffn_hidden = model.ffn();
      EXPECT_EQ(to_toml(back), to_toml(model)) << family;
    }
  }
  const auto type = [](const char* family) {
    return json::parse(config_json(tiny(family, true), tensor::DType::f32))["model_type"];
  };
  EXPECT_EQ(type("mistral"), "mistral");
  EXPECT_EQ(type("qwen2"), "qwen2");
  EXPECT_EQ(type("qwen3"), "qwen3");
  EXPECT_EQ(type("mixtral"), "mixtral");
  EXPECT_EQ(type("qwen2_moe"), "qwen2_moe");
  EXPECT_EQ(type("qwen3_moe"), "qwen3_moe");
  EXPECT_EQ(type("llama3"), "llama");
  EXPECT_EQ(type("yarn"), "llama");
  EXPECT_EQ(type("phi3"), "phi3");
  EXPECT_EQ(type("neox"), "gpt_neox");
}

TEST(ConfigJson, RefusesWhatNoRelativeComputes) {
  nn::ModelConfig model = tiny("qwen3", true);
  model.mlp_bias = true;
  const Error error = thrown_by([&] { config_json(model, tensor::DType::f32); });
  EXPECT_EQ(error.kind(), "hf.export");
  EXPECT_THAT(error.message(), HasSubstr("mlp_bias = true, qk_norm = true"));
  EXPECT_THAT(error.hint(), HasSubstr("Qwen3"));
  nn::ModelConfig sigmoid = tiny("mixtral", false);
  sigmoid.router = "sigmoid";
  EXPECT_THAT(thrown_by([&] { config_json(sigmoid, tensor::DType::f32); }).message(), HasSubstr("router = sigmoid"));
}

TEST(ConfigJson, SaysWhichGeluAndWhichType) {
  const json gpt = json::parse(config_json(tiny("gpt", true), tensor::DType::f32));
  EXPECT_EQ(gpt["activation_function"], "gelu_new");
  EXPECT_EQ(gpt["torch_dtype"], "float32");
  EXPECT_EQ(gpt["architectures"], json::array({"GPT2LMHeadModel"}));
  EXPECT_EQ(json::parse(config_json(tiny("llama", true), tensor::DType::bf16))["torch_dtype"], "bfloat16");
}

TEST(ConfigJson, RefusesGroupedQueriesInGpt2) {
  nn::ModelConfig model = tiny("gpt", true);
  model.kv_heads = 1;
  const Error error = thrown_by([&] { config_json(model, tensor::DType::f32); });
  EXPECT_EQ(error.kind(), "hf.export");
  EXPECT_THAT(error.message(), HasSubstr("3 heads for 1"));
}

TEST(ConfigJson, RefusesBlocksAndWindowsThatTheyDoNotHave) {
  for (const char* family : {"gpt", "llama"}) {
    nn::ModelConfig model = tiny(family, true);
    model.parallel_block = true;
    Error error = thrown_by([&] { config_json(model, tensor::DType::f32); });
    EXPECT_EQ(error.kind(), "hf.export");
    EXPECT_THAT(error.message(), HasSubstr("no parallel block"));
    model.parallel_block = false;
    if (!model.is_gpt()) continue;  // Mistral has windows
    model.window = model.seq - 1;
    error = thrown_by([&] { config_json(model, tensor::DType::f32); });
    EXPECT_EQ(error.kind(), "hf.export");
    EXPECT_THAT(error.message(), HasSubstr(fmt::format("model.window = {}", model.window)));
    model.window = model.seq;  // hides nothing
    EXPECT_FALSE(config_json(model, tensor::DType::f32).empty());
  }
}

TEST(ToToml, LoadsBackToTheSameModel) {
  const nn::ModelConfig model = parse_config(llama_json().dump(), "c");
  nn::ModelConfig back;
  ConfigSchema schema;
  schema.section("model", "The model.", back, nn::kModelFields);
  schema.load_text(to_toml(model), "model.toml");
  schema.throw_if_problems();
  EXPECT_EQ(to_toml(back), to_toml(model));
  EXPECT_EQ(back.rotary_base, 500000);
  EXPECT_EQ(back.family, "llama");
}

}  // namespace
}  // namespace ms::hf
