// What holds in each family of transformers where config.json is silent, and in which layers windows are.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "hf/model_json.h"
#include "support.h"

namespace ms::hf {
namespace {

using nlohmann::json;

// No more than what no family has a default for.
nn::ModelConfig family_of(const char* type, const json& keys) {
  json config = {{"model_type", type},
                 {"vocab_size", 100},
                 {"hidden_size", 1024},
                 {"intermediate_size", 4096},
                 {"num_attention_heads", 32},
                 {"num_hidden_layers", 4},
                 {"max_position_embeddings", 8192}};
  config.update(keys);
  return parse_config(config.dump(), "config.json");
}

std::string refusal_of(const char* type, const json& keys) {
  return thrown_by([&] { family_of(type, keys); }).kind();
}

// dots.llm1's class has no defaults for these.
const json kDots1 = {{"n_routed_experts", 8}, {"num_experts_per_tok", 2}, {"n_shared_experts", 1}};

TEST(Families, HaveTheDefaultsOfTransformers) {
  struct Row {
    const char* type;
    std::int64_t kv, head, window;
    double eps, theta;
  };
  // Of the configurations that transformers 5.24 makes of nothing, but with use_sliding_window where there is such a
  // key.
  const Row rows[] = {
      {"llama", 32, 32, 0, 1e-6, 1e4},     {"mistral", 8, 32, 4096, 1e-6, 1e4},   {"qwen2", 32, 32, 4096, 1e-6, 1e4},
      {"qwen3", 32, 128, 4096, 1e-6, 1e4}, {"phi3", 32, 32, 0, 1e-5, 1e4},        {"mixtral", 8, 32, 0, 1e-5, 1e6},
      {"qwen2_moe", 16, 32, 0, 1e-6, 1e4}, {"qwen3_moe", 4, 32, 4096, 1e-6, 1e4}, {"dots1", 32, 32, 4096, 1e-6, 1e4},
  };
  for (const Row& row : rows) {
    json keys = {{"use_sliding_window", row.window > 0}, {"max_window_layers", 0}};
    if (std::string_view(row.type) == "dots1") keys.update(kDots1);
    const nn::ModelConfig model = family_of(row.type, keys);
    EXPECT_EQ(model.kv(), row.kv) << row.type;
    EXPECT_EQ(model.head_dim(), row.head) << row.type;
    EXPECT_EQ(model.window, row.window) << row.type;
    EXPECT_EQ(model.norm_eps, row.eps) << row.type;
    EXPECT_EQ(model.rotary_base, row.theta) << row.type;
    EXPECT_EQ(model.init_std, 0.02) << row.type;
    EXPECT_FALSE(model.tied_embeddings) << row.type;
  }
}

TEST(Families, Dots1HasTheRouterOfDeepSeek) {
  json keys = kDots1;
  keys.update({{"n_group", 4}, {"topk_group", 2}, {"routed_scaling_factor", 2.5}, {"first_k_dense_replace", 2}});
  const nn::ModelConfig model = family_of("dots1", keys);
  EXPECT_TRUE(model.router == "sigmoid" && model.router_bias && model.qk_norm && !model.shared_expert_gate);
  EXPECT_FALSE(model.router_normalized);
  EXPECT_EQ(model.router_groups, 4);
  EXPECT_EQ(model.router_groups_per_token, 2);
  EXPECT_EQ(model.router_scale, 2.5);
  EXPECT_EQ(model.expert_ffn(), 1408);
  EXPECT_EQ(model.shared_experts, 1);
  EXPECT_EQ(model.dense_layers, "0-1");
  EXPECT_EQ(model.window, 0) << "windows begin behind the last layer";
  EXPECT_EQ(family_of("dots1", kDots1).dense_layers, "");
  for (const char* missing : {"n_routed_experts", "num_experts_per_tok", "n_shared_experts"}) {
    json less = keys;
    less.erase(missing);
    EXPECT_EQ(refusal_of("dots1", less), "hf.config") << missing;
  }
  for (const auto& [key, value] : {std::pair{"first_k_dense_replace", 4}, {"n_group", 3}, {"topk_group", 5}}) {
    json wrong = keys;
    wrong[key] = value;
    EXPECT_EQ(refusal_of("dots1", wrong), "hf.config") << key;
  }
}

TEST(Families, OfQwenHaveDenseLayersAmongExperts) {
  const auto dense_of = [](const json& keys) { return family_of("qwen3_moe", keys).dense_layers; };
  EXPECT_EQ(dense_of({{"mlp_only_layers", json::array()}, {"decoder_sparse_step", 1}}), "");
  EXPECT_EQ(dense_of({{"num_hidden_layers", 8}, {"mlp_only_layers", {0, 1, 5, 99}}}), "0-1,5");
  EXPECT_EQ(dense_of({{"num_hidden_layers", 8}, {"decoder_sparse_step", 2}}), "0-6:2");
  EXPECT_EQ(dense_of({{"num_hidden_layers", 6}, {"decoder_sparse_step", 3}, {"mlp_only_layers", {2}}}), "0-4");
  for (const json& wrong : {json{{"decoder_sparse_step", 0}}, json{{"mlp_only_layers", 3}},
                            json{{"num_hidden_layers", 2}, {"mlp_only_layers", {0, 1}}}})
    EXPECT_EQ(refusal_of("qwen3_moe", wrong), "hf.config") << wrong;
  EXPECT_EQ(family_of("mixtral", {{"mlp_only_layers", {0}}}).dense_layers, "") << "Mixtral does not read it";
}

// Qwen2-MoE has windows in every other layer, before max_window_layers.
TEST(Families, WindowsOfQwen2MoeAlternate) {
  const auto with = [](const json& more) {
    json keys = {{"use_sliding_window", true}, {"sliding_window", 100}};
    keys.update(more);
    return keys;
  };
  EXPECT_EQ(family_of("qwen2_moe", with({{"max_window_layers", 0}})).window, 0);
  EXPECT_EQ(family_of("qwen2_moe", with({{"num_hidden_layers", 1}, {"max_window_layers", 1}})).window, 100);
  EXPECT_EQ(refusal_of("qwen2_moe", with({{"max_window_layers", 4}})), "hf.config");
  EXPECT_EQ(refusal_of("qwen2_moe", with({{"max_window_layers", 1}})), "hf.config");
  EXPECT_EQ(refusal_of("qwen2_moe", with(json::object())), "hf.config");
  EXPECT_EQ(family_of("qwen2_moe", with({{"sliding_window", 8192}})).window, 0) << "as long as a sequence";
  EXPECT_EQ(family_of("qwen2", with({{"max_window_layers", 0}})).window, 100);
  EXPECT_EQ(family_of("qwen2", with({{"max_window_layers", 4}})).window, 0);
  const json all(4, "sliding_attention"), none(4, "full_attention");
  for (const char* type : {"qwen2", "qwen3", "qwen2_moe"}) {
    EXPECT_EQ(family_of(type, with({{"layer_types", all}})).window, 100) << type;
    EXPECT_EQ(family_of(type, with({{"layer_types", none}})).window, 0) << type;
    EXPECT_EQ(refusal_of(type, with({{"layer_types", json(3, "full_attention")}})), "hf.config") << type;
    EXPECT_EQ(refusal_of(type, with({{"layer_types", json(4, "linear_attention")}})), "hf.config") << type;
  }
}

TEST(Families, Qwen2MoeWithoutItsBiasesIsRefused) {
  EXPECT_EQ(refusal_of("qwen2_moe", {{"qkv_bias", false}}), "hf.config");
  EXPECT_TRUE(family_of("qwen2_moe", {{"qkv_bias", true}}).qkv_bias);
}

TEST(Families, TheTypeOfEachLayerIsWritten) {
  for (const char* family : {"qwen2", "qwen3", "qwen2_moe"}) {
    nn::ModelConfig model = tiny(family, false);
    for (const std::int64_t window : {0, 4}) {
      model.window = window;
      const std::string text = config_json(model, tensor::DType::f32);
      const json types = json::parse(text)["layer_types"];
      ASSERT_EQ(types.size(), static_cast<std::size_t>(model.layers)) << family;
      for (const json& type : types) EXPECT_EQ(type, window > 0 ? "sliding_attention" : "full_attention");
      EXPECT_EQ(parse_config(text, "c").window, window) << family;
    }
  }
  EXPECT_FALSE(json::parse(config_json(tiny("mistral", false), tensor::DType::f32)).contains("layer_types"));
}

}  // namespace
}  // namespace ms::hf
