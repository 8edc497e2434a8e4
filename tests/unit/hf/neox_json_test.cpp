// config.json of GPT-NeoX and Pythia.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "hf/model_json.h"
#include "support.h"

namespace ms::hf {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(ParseConfig, ReadsPythiaAndWhatVersion5OfTransformersWrites) {
  json config = json::parse(R"({"hidden_act": "gelu", "hidden_size": 512, "initializer_range": 0.02,
    "intermediate_size": 2048, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "model_type": "gpt_neox",
    "num_attention_heads": 8, "num_hidden_layers": 6, "rotary_emb_base": 10000, "rotary_pct": 0.25,
    "tie_word_embeddings": false, "use_parallel_residual": true, "vocab_size": 50304})");
  const nn::ModelConfig model = parse_config(config.dump(), "c");
  EXPECT_EQ(model.family, "neox");
  EXPECT_EQ(model.rotary_dim, 16);
  EXPECT_EQ(model.rotary_base, 10000);
  EXPECT_TRUE(model.parallel_block && model.exact_gelu && !model.tied_embeddings);
  config.erase("rotary_pct");
  EXPECT_EQ(parse_config(config.dump(), "c").rotary_dim, 16) << "the default";
  config["rope_parameters"] = {{"partial_rotary_factor", 0.5}, {"rope_theta", 7.0}, {"rope_type", "default"}};
  config["hidden_act"] = "gelu_fast";
  config["use_parallel_residual"] = false;
  const nn::ModelConfig serial = parse_config(config.dump(), "c");
  EXPECT_EQ(serial.rotary_dim, 32);
  EXPECT_EQ(serial.rotary_base, 7);
  EXPECT_FALSE(serial.parallel_block || serial.exact_gelu);
  config["attention_bias"] = false;
  EXPECT_THAT(thrown_by([&] { parse_config(config.dump(), "c"); }).message(), HasSubstr("attention_bias = false"));
  config["attention_bias"] = true;
  config["hidden_act"] = "relu";
  EXPECT_THAT(thrown_by([&] { parse_config(config.dump(), "c"); }).message(), HasSubstr("hidden_act = \"relu\""));
}

TEST(ConfigJson, SaysThatAGeluIsExact) {
  nn::ModelConfig gpt = tiny("gpt", true), neox = tiny("neox", true);
  gpt.exact_gelu = true, neox.exact_gelu = false;
  EXPECT_EQ(json::parse(config_json(gpt, tensor::DType::f32))["activation_function"], "gelu");
  EXPECT_EQ(json::parse(config_json(neox, tensor::DType::f32))["hidden_act"], "gelu_new");
}

TEST(ConfigJson, RefusesWhatGptNeoxLacks) {
  const auto refusal = [](const std::function<void(nn::ModelConfig&)>& change) {
    nn::ModelConfig model = tiny("neox", false);
    change(model);
    return thrown_by([&] { config_json(model, tensor::DType::f32); }).message();
  };
  EXPECT_THAT(refusal([](nn::ModelConfig& model) { model.kv_heads = 2; }), HasSubstr("GPT-NeoX has no grouped-query"));
  EXPECT_THAT(refusal([](nn::ModelConfig& model) { model.window = 3; }), HasSubstr("model.window = 3"));
  EXPECT_THAT(refusal([](nn::ModelConfig& model) { model.head_size = 6; }), HasSubstr("4 of 6 for 16"));
}

}  // namespace
}  // namespace ms::hf
