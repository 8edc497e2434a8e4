// The mapping covers the parameters of the model, every one once and in its shape; and its names are those of
// transformers.
#include "hf/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "nn/params.h"
#include "support.h"

namespace ms::hf {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

struct Shape {
  std::int64_t rows, cols;
  bool operator==(const Shape&) const = default;
};

std::vector<Mapped> named(const nn::ModelConfig& model) { return tensors_of(model, export_layout(model)); }

TEST(TensorsOf, CoversEveryParameterOnce) {
  for (const char* family : kFamilies) {
    for (const bool tied : {true, false}) {
      const nn::ModelConfig model = tiny(family, tied);
      std::map<std::string, Shape> expected, mapped;
      const mesh::Mesh one{1, 1, 1};
      for (const nn::SpanSpec& span : nn::chunk_spans(model, one, 0, nn::chunk_part(model, one, 0, 0, 1), 0)) {
        for (const nn::ParamSpec& param : span.params) {
          expected[param.shard.name] = {param.shard.global_rows, param.shard.global_cols};
        }
      }
      for (const std::string& name : router_biases(model)) expected[name] = {1, model.experts};
      std::set<std::string> theirs;
      for (const Mapped& tensor : named(model)) {
        EXPECT_TRUE(theirs.insert(tensor.name).second) << tensor.name;
        std::int64_t size = 0, there = 1;
        for (const Part& part : tensor.parts) {
          EXPECT_TRUE(mapped.insert({part.name, {part.rows, part.cols}}).second) << part.name;
          size += part.size();
        }
        for (const std::int64_t dim : tensor.shape) there *= dim;
        EXPECT_EQ(size, there) << tensor.name;
      }
      EXPECT_EQ(mapped, expected) << family << tied;
      for (const std::string& buffer : buffers_of(model)) EXPECT_FALSE(theirs.contains(buffer)) << buffer;
      EXPECT_TRUE(theirs.contains(embedding_name(model)));
      EXPECT_EQ(theirs.contains(head_name(model)), !tied);
    }
  }
}

std::string line_of(const Mapped& tensor) {
  std::string line = tensor.name + (tensor.transposed ? " T" : "");
  for (const std::int64_t dim : tensor.shape) line += " " + std::to_string(dim);
  for (const Part& part : tensor.parts) line += " " + part.name;
  return line;
}

TEST(TensorsOf, NamesThemAsGpt2) {
  nn::ModelConfig model = tiny("gpt", true);
  model.layers = 1;
  std::vector<std::string> lines;
  for (const Mapped& tensor : named(model)) lines.push_back(line_of(tensor));
  EXPECT_THAT(
      lines,
      ElementsAre(
          "transformer.wte.weight 11 12 embed.tokens.weight", "transformer.wpe.weight 7 12 embed.positions.weight",
          "transformer.h.0.ln_1.weight 12 layers.0.norm1.weight", "transformer.h.0.ln_1.bias 12 layers.0.norm1.bias",
          "transformer.h.0.attn.c_attn.weight T 12 36 layers.0.attn.q.weight layers.0.attn.k.weight "
          "layers.0.attn.v.weight",
          "transformer.h.0.attn.c_attn.bias 36 layers.0.attn.q.bias layers.0.attn.k.bias layers.0.attn.v.bias",
          "transformer.h.0.attn.c_proj.weight T 12 12 layers.0.attn.out.weight",
          "transformer.h.0.attn.c_proj.bias 12 layers.0.attn.out.bias",
          "transformer.h.0.ln_2.weight 12 layers.0.norm2.weight", "transformer.h.0.ln_2.bias 12 layers.0.norm2.bias",
          "transformer.h.0.mlp.c_fc.weight T 12 48 layers.0.mlp.up.weight",
          "transformer.h.0.mlp.c_fc.bias 48 layers.0.mlp.up.bias",
          "transformer.h.0.mlp.c_proj.weight T 48 12 layers.0.mlp.down.weight",
          "transformer.h.0.mlp.c_proj.bias 12 layers.0.mlp.down.bias", "transformer.ln_f.weight 12 final_norm.weight",
          "transformer.ln_f.bias 12 final_norm.bias"));
}

TEST(TensorsOf, NamesThemAsLlama) {
  nn::ModelConfig model = tiny("llama", false);
  model.layers = 1;
  std::vector<std::string> lines;
  for (const Mapped& tensor : named(model)) lines.push_back(line_of(tensor));
  EXPECT_THAT(lines, ElementsAre("model.embed_tokens.weight 11 16 embed.tokens.weight",
                                 "model.layers.0.input_layernorm.weight 16 layers.0.norm1.weight",
                                 "model.layers.0.self_attn.q_proj.weight 16 16 layers.0.attn.q.weight",
                                 "model.layers.0.self_attn.k_proj.weight 8 16 layers.0.attn.k.weight",
                                 "model.layers.0.self_attn.v_proj.weight 8 16 layers.0.attn.v.weight",
                                 "model.layers.0.self_attn.o_proj.weight 16 16 layers.0.attn.out.weight",
                                 "model.layers.0.post_attention_layernorm.weight 16 layers.0.norm2.weight",
                                 "model.layers.0.mlp.gate_proj.weight 20 16 layers.0.mlp.gate.weight",
                                 "model.layers.0.mlp.up_proj.weight 20 16 layers.0.mlp.up.weight",
                                 "model.layers.0.mlp.down_proj.weight 16 20 layers.0.mlp.down.weight",
                                 "model.norm.weight 16 final_norm.weight", "lm_head.weight 11 16 head.weight"));
}

TEST(TensorsOf, NamesThemAsGptNeox) {
  std::vector<std::string> lines;
  for (const Mapped& tensor : named(tiny("neox", false))) {
    if (tensor.name.find("layers.1.") == std::string::npos) lines.push_back(line_of(tensor));
    EXPECT_EQ(tensor.blocks, tensor.parts.size() == 3 ? 4 : 1) << tensor.name;
  }
  EXPECT_THAT(
      lines,
      ElementsAre("gpt_neox.embed_in.weight 11 16 embed.tokens.weight",
                  "gpt_neox.layers.0.input_layernorm.weight 16 layers.0.norm1.weight",
                  "gpt_neox.layers.0.input_layernorm.bias 16 layers.0.norm1.bias",
                  "gpt_neox.layers.0.attention.query_key_value.weight 48 16 layers.0.attn.q.weight "
                  "layers.0.attn.k.weight layers.0.attn.v.weight",
                  "gpt_neox.layers.0.attention.query_key_value.bias 48 layers.0.attn.q.bias layers.0.attn.k.bias "
                  "layers.0.attn.v.bias",
                  "gpt_neox.layers.0.attention.dense.weight 16 16 layers.0.attn.out.weight",
                  "gpt_neox.layers.0.attention.dense.bias 16 layers.0.attn.out.bias",
                  "gpt_neox.layers.0.post_attention_layernorm.weight 16 layers.0.norm2.weight",
                  "gpt_neox.layers.0.post_attention_layernorm.bias 16 layers.0.norm2.bias",
                  "gpt_neox.layers.0.mlp.dense_h_to_4h.weight 20 16 layers.0.mlp.up.weight",
                  "gpt_neox.layers.0.mlp.dense_h_to_4h.bias 20 layers.0.mlp.up.bias",
                  "gpt_neox.layers.0.mlp.dense_4h_to_h.weight 16 20 layers.0.mlp.down.weight",
                  "gpt_neox.layers.0.mlp.dense_4h_to_h.bias 16 layers.0.mlp.down.bias",
                  "gpt_neox.final_layer_norm.weight 16 final_norm.weight",
                  "gpt_neox.final_layer_norm.bias 16 final_norm.bias", "embed_out.weight 11 16 head.weight"));
}

TEST(TensorsOf, JoinsThemAsPhi3) {
  nn::ModelConfig model = tiny("phi3", false);
  std::vector<std::string> lines;
  for (const Mapped& tensor : named(model)) {
    if (tensor.parts.size() > 1) lines.push_back(line_of(tensor));
  }
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[2],
            "model.layers.1.self_attn.qkv_proj.weight 32 16 layers.1.attn.q.weight layers.1.attn.k.weight "
            "layers.1.attn.v.weight");
  EXPECT_EQ(lines[3], "model.layers.1.mlp.gate_up_proj.weight 40 16 layers.1.mlp.gate.weight layers.1.mlp.up.weight");
}

TEST(TensorsOf, NamesBiasesAndHeadNormsAsTheRelativesOfLlama) {
  const auto shapes = [](const char* family) {
    std::map<std::string, std::vector<std::int64_t>> found;
    for (const Mapped& tensor : named(tiny(family, true))) {
      if (tensor.name.starts_with("model.layers.1.")) found[tensor.name.substr(15)] = tensor.shape;
    }
    return found;
  };
  using Dims = std::vector<std::int64_t>;
  auto qwen2 = shapes("qwen2"), qwen3 = shapes("qwen3"), llama = shapes("llama3");
  EXPECT_EQ(qwen2["self_attn.q_proj.bias"], Dims{16});
  EXPECT_EQ(qwen2["self_attn.v_proj.bias"], Dims{8});
  EXPECT_FALSE(qwen2.contains("self_attn.o_proj.bias"));
  EXPECT_EQ(qwen3["self_attn.k_norm.weight"], Dims{10});
  EXPECT_EQ(qwen3["self_attn.q_proj.weight"], (Dims{40, 16}));
  EXPECT_EQ(qwen3["self_attn.o_proj.weight"], (Dims{16, 40}));
  EXPECT_EQ(llama["self_attn.o_proj.bias"], Dims{16});
  EXPECT_EQ(llama["mlp.gate_proj.bias"], Dims{20});
  EXPECT_EQ(llama["mlp.down_proj.bias"], Dims{16});
}

TEST(TensorsOf, NamesExpertsAsMixtralAndAsQwen) {
  const auto of_layer = [](const char* family) {
    std::vector<std::string> lines;
    for (const Mapped& tensor : named(tiny(family, true))) {
      if (tensor.name.starts_with("model.layers.1.") && tensor.parts[0].name.find(".mlp.") != std::string::npos)
        lines.push_back(line_of(tensor).substr(15));
    }
    return lines;
  };
  const std::vector<std::string> mixtral = of_layer("mixtral"), qwen3 = of_layer("qwen3_moe");
  ASSERT_EQ(mixtral.size(), 1U + 3 * 4);
  EXPECT_EQ(mixtral[0], "block_sparse_moe.gate.weight 4 16 layers.1.mlp.router.weight");
  EXPECT_EQ(mixtral[4], "block_sparse_moe.experts.1.w1.weight 20 16 layers.1.mlp.experts.1.gate.weight");
  EXPECT_EQ(mixtral[5], "block_sparse_moe.experts.1.w3.weight 20 16 layers.1.mlp.experts.1.up.weight");
  EXPECT_EQ(mixtral[6], "block_sparse_moe.experts.1.w2.weight 16 20 layers.1.mlp.experts.1.down.weight");
  ASSERT_EQ(qwen3.size(), 1U + 3 * 6);
  const std::vector<std::string> dots = of_layer("dots1");
  ASSERT_EQ(dots.size(), 1U + 3 * 8 + 1 + 3);
  EXPECT_EQ(dots[25], "mlp.gate.e_score_correction_bias 8 layers.1.mlp.router.bias");
  EXPECT_EQ(dots[26], "mlp.shared_experts.gate_proj.weight 20 16 layers.1.mlp.shared.gate.weight");
  EXPECT_EQ(qwen3[0], "mlp.gate.weight 6 16 layers.1.mlp.router.weight");
  EXPECT_THAT(named(tiny("qwen3_moe", true)),
              Contains(testing::Field(&Mapped::name, std::string("model.layers.0.mlp.up_proj.weight"))));
  EXPECT_EQ(qwen3[18], "mlp.experts.5.down_proj.weight 16 10 layers.1.mlp.experts.5.down.weight");
}

TEST(BuffersOf, AreThoseOfTheModelsLayers) {
  EXPECT_THAT(buffers_of(tiny("gpt", true)), Contains("transformer.h.1.attn.masked_bias"));
  EXPECT_THAT(buffers_of(tiny("gpt", true)), Not(Contains("transformer.h.2.attn.bias")));
  EXPECT_THAT(buffers_of(tiny("llama", true)), Contains("model.layers.1.self_attn.rotary_emb.inv_freq"));
}

}  // namespace
}  // namespace ms::hf
