// check_model(): each rule refuses on its own, with the offending key and the reason.
#include "nn/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace ms::nn {
namespace {

using ::testing::HasSubstr;

struct Input {
  ModelConfig model{.layers = 8, .hidden = 64, .heads = 8, .kv_heads = 4, .ffn_hidden = 96, .vocab = 100, .seq = 32};
  mesh::MeshConfig mesh{.pp = 2, .tp = 4, .chunks = 2};
  std::int64_t microbatch = 1;
};

TEST(CheckModel, AcceptsValidModels) {
  struct Case {
    const char* what;
    std::function<void(Input&)> change;
  };
  const Case cases[] = {
      {"as it is", [](Input&) {}},
      {"llama", [](Input& in) { in.model.family = "llama"; }},
      {"any vocabulary", [](Input& in) { in.model.vocab = 101; }},
      {"as many key and value heads as heads", [](Input& in) { in.model.kv_heads = 0; }},
      {"layers that do not divide", [](Input& in) { in.model.layers = 7; }},
      {"a layer for every chunk", [](Input& in) { in.model.layers = 4; }},
      {"odd sequence, microbatch divides", [](Input& in) { in.model.seq = 33, in.microbatch = 4; }},
      {"odd sequence without sequence parallelism",
       [](Input& in) { in.model.seq = 33, in.mesh.sequence_parallel = false; }},
      {"odd head size without rotary positions", [](Input& in) { in.model.hidden = 8 * 7; }},
      {"a window", [](Input& in) { in.model.window = 5; }},
      {"a window of the whole sequence", [](Input& in) { in.model.window = 32; }},
      {"a parallel block", [](Input& in) { in.model.parallel_block = true; }},
      {"a head size of its own",
       [](Input& in) { in.model.family = "llama", in.model.hidden = 100, in.model.head_size = 48; }},
      {"norms of heads, biases, scaled positions",
       [](Input& in) {
         in.model.family = "llama", in.model.rotary_scaling = "llama3";
         in.model.qk_norm = in.model.qkv_bias = true;
       }},
      {"a parallel block with all biases",
       [](Input& in) {
         in.model.family = "llama", in.model.parallel_block = true;
         in.model.qkv_bias = in.model.out_bias = in.model.mlp_bias = true;
       }},
      {"experts",
       [](Input& in) {
         in.model.family = "llama", in.model.experts = 5, in.model.ffn_hidden = 98, in.model.expert_ffn_hidden = 20;
       }},
      {"the largest head", [](Input& in) { in.model.hidden = 8 * 256; }},
  };
  for (const Case& c : cases) {
    Input in;
    c.change(in);
    for (const ModelProblem& problem : check_model(in.model, in.mesh, in.microbatch)) {
      ADD_FAILURE() << c.what << ": " << problem.key << ": " << problem.message;
    }
  }
}

TEST(CheckModel, RefusesEachBrokenRule) {
  struct Case {
    std::function<void(Input&)> change;
    const char* key;
    const char* message;
  };
  const Case cases[] = {
      {[](Input& in) { in.model.hidden = 100; }, "model.hidden",
       "model.hidden = 100 is not divisible by model.heads = 8"},
      {[](Input& in) { in.model.kv_heads = 12, in.mesh.tp = 4; }, "model.heads",
       "model.heads = 8 is not divisible by model.kv_heads = 12"},
      {[](Input& in) { in.model.kv_heads = 2; }, "model.kv_heads",
       "model.kv_heads = 2 is not divisible by mesh.tp = 4"},
      {[](Input& in) { in.model.kv_heads = 0, in.mesh.tp = 16; }, "model.heads",
       "model.heads = 8 is not divisible by mesh.tp = 16"},
      {[](Input& in) { in.model.ffn_hidden = 98; }, "model.ffn_hidden",
       "model.ffn_hidden = 98 is not divisible by mesh.tp = 4"},
      {[](Input& in) { in.model.seq = 33; }, "model.seq",
       "splits train.microbatch x model.seq = 1 x 33 tokens over mesh.tp = 4"},
      {[](Input& in) { in.model.family = "llama", in.model.hidden = 8 * 7; }, "model.heads",
       "rotary positions need an even head size, hidden / heads = 7"},
      {[](Input& in) { in.model.hidden = 8 * 257; }, "model.heads", "hidden / heads = 257"},
      {[](Input& in) { in.model.family = "llama", in.model.head_size = 7; }, "model.head_dim",
       "rotary positions need an even head size, model.head_dim = 7"},
      {[](Input& in) { in.model.qk_norm = true; }, "model.qk_norm", "gpt has no RMSNorm"},
      {[](Input& in) { in.model.family = "neox", in.model.qk_norm = true; }, "model.qk_norm", "neox has no RMSNorm"},
      {[](Input& in) { in.model.family = "neox", in.model.head_size = 7; }, "model.head_dim",
       "rotary positions need an even head size, model.head_dim = 7"},
      {[](Input& in) { in.model.family = "llama", in.model.exact_gelu = true; }, "model.exact_gelu",
       "llama has SwiGLU, not GELU"},
      {[](Input& in) { in.model.rotary_dim = 4; }, "model.rotary_dim", "gpt has learned positions"},
      {[](Input& in) { in.model.family = "llama", in.model.rotary_dim = 5; }, "model.rotary_dim",
       "model.rotary_dim = 5 is not an even number"},
      {[](Input& in) { in.model.family = "llama", in.model.rotary_dim = 250; }, "model.rotary_dim",
       "model.rotary_dim = 250 is not an even number"},
      {[](Input& in) { in.model.family = "llama", in.model.rotary_scaling = "yarn", in.model.rotary_low_freq = 32; },
       "model.rotary_high_freq", "model.rotary_high_freq = 32 is not above model.rotary_low_freq = 32"},
      {[](Input& in) { in.model.rotary_scaling = "linear"; }, "model.rotary_scaling", "gpt has learned positions"},
      {[](Input& in) { in.model.family = "llama", in.model.rotary_scaling = "llama3", in.model.rotary_low_freq = 4; },
       "model.rotary_high_freq", "model.rotary_high_freq = 4 is not above model.rotary_low_freq = 4"},
      {[](Input& in) { in.model.family = "llama", in.model.parallel_block = in.model.qkv_bias = true; },
       "model.parallel_block", "set all of model.qkv_bias, model.out_bias and model.mlp_bias, or none"},
      {[](Input& in) { in.model.family = "llama", in.model.experts = 3, in.model.experts_per_token = 4; },
       "model.experts_per_token", "model.experts_per_token = 4 is above model.experts = 3"},
      {[](Input& in) { in.model.family = "llama", in.model.experts = 5, in.mesh.ep = 2, in.mesh.dp = 2; },
       "model.experts", "model.experts = 5 is not divisible by mesh.ep = 2"},
      {[](Input& in) { in.model.family = "llama", in.model.experts = 4, in.mesh.ep = 2, in.mesh.dp = 3; }, "mesh.dp",
       "mesh.dp = 3 is not divisible by mesh.ep = 2"},
      {[](Input& in) { in.mesh.ep = 2, in.mesh.dp = 2; }, "mesh.ep", "model.experts is 0"},
      {[](Input& in) { in.mesh.expert_tp = 1; }, "mesh.expert_tp", "model.experts is 0"},
      {[](Input& in) { in.model.family = "llama", in.model.experts = 4, in.mesh.expert_tp = 2; }, "mesh.expert_tp",
       "mesh.expert_tp = 2 is neither 1 nor mesh.tp = 4"},
      {[](Input& in) {
         in.model.family = "llama", in.model.experts = 16, in.mesh.expert_tp = 1, in.mesh.dp = 2, in.mesh.ep = 16;
       },
       "mesh.dp", "mesh.dp x mesh.tp = 2 x 4 is not divisible by mesh.ep = 16"},
      {[](Input& in) {
         in.model.family = "llama", in.model.experts = 6, in.mesh.expert_tp = 1, in.mesh.dp = 3, in.mesh.ep = 6;
       },
       "mesh.ep", "a mesh.ep that divides mesh.tp = 4 or is a multiple of it, and it is 6"},
      {[](Input& in) {
         in.model.family = "llama", in.model.experts = 4, in.mesh.expert_tp = 1;
         in.mesh.sequence_parallel = false, in.model.seq = 30, in.microbatch = 1;
       },
       "mesh.expert_tp", "1 x 30 tokens out over mesh.tp = 4"},
      {[](Input& in) {
         in.model.family = "llama", in.model.experts = 4, in.model.shared_experts = 1, in.mesh.expert_tp = 1;
         in.model.expert_ffn_hidden = 98;
       },
       "model.shared_experts", "98 is not divisible by mesh.tp = 4"},
      {[](Input& in) { in.model.experts = 4; }, "model.experts", "needs model.family = \"llama\""},
      {[](Input& in) { in.model.family = "llama", in.model.experts = 4, in.model.expert_ffn_hidden = 98; },
       "model.expert_ffn_hidden", "98 is not divisible by mesh.tp = 4"},
      {[](Input& in) { in.model.router_bias = true; }, "model.router_bias", "there is no router"},
      {[](Input& in) { in.model.family = "llama", in.model.experts = 8, in.model.router_groups = 3; }, "model.experts",
       "model.experts = 8 is not divisible by model.router_groups = 3"},
      {[](Input& in) {
         in.model.family = "llama", in.model.experts = 8;
         in.model.router_groups = 4, in.model.experts_per_token = 3;
       },
       "model.router_groups_per_token", "1 of 4 groups have 2 experts"},
      {[](Input& in) {
         in.model.family = "llama", in.model.experts = 8;
         in.model.router_groups = 8, in.model.router_groups_per_token = 2;
       },
       "model.router_groups", "a group needs two experts"},
      {[](Input& in) {
         in.model.family = "llama", in.model.experts = 8;
         in.model.router_groups = 2, in.model.router_groups_per_token = 3;
       },
       "model.router_groups_per_token", "model.router_groups_per_token = 3 of 2 groups"},
      {[](Input& in) { in.model.dense_layers = "0"; }, "model.dense_layers", "all layers are dense"},
      {[](Input& in) { in.model.family = "llama", in.model.experts = 4, in.model.dense_layers = "0-3,5-4"; },
       "model.dense_layers", "'5-4' is not a layer or a range of layers"},
      {[](Input& in) { in.model.family = "llama", in.model.experts = 4, in.model.dense_layers = "4:"; },
       "model.dense_layers", "'4:' is not a layer"},
      {[](Input& in) { in.model.family = "llama", in.model.experts = 4, in.model.dense_layers = "0-8:4"; },
       "model.dense_layers", "there is no layer 8"},
      {[](Input& in) { in.model.family = "llama", in.model.experts = 4, in.model.dense_layers = "0-7"; },
       "model.dense_layers", "leaves no layer"},
      {[](Input& in) {
         in.model.family = "llama", in.model.experts = 4, in.model.expert_ffn_hidden = 16;
         in.model.dense_layers = "0", in.model.ffn_hidden = 98;
       },
       "model.ffn_hidden", "98 is not divisible by mesh.tp = 4"},
      {[](Input& in) { in.model.window = 33; }, "model.window",
       "model.window = 33 is longer than model.seq = 32; 0 means no window"},
      {[](Input& in) { in.model.layers = 3; }, "model.layers", "3 layers for 2 pipeline stages x 2 chunks"},
  };
  for (const Case& c : cases) {
    Input in;
    c.change(in);
    const std::vector<ModelProblem> problems = check_model(in.model, in.mesh, in.microbatch);
    ASSERT_EQ(problems.size(), 1U) << c.message << (problems.empty() ? "" : ", and " + problems.back().message);
    EXPECT_EQ(problems[0].key, c.key);
    EXPECT_THAT(problems[0].message, HasSubstr(c.message));
  }
}

TEST(CheckModel, FindsAllProblemsAtOnce) {
  Input in;
  in.model.hidden = 100;
  in.model.ffn_hidden = 98;
  in.model.layers = 1;
  EXPECT_EQ(check_model(in.model, in.mesh, in.microbatch).size(), 3U);
}

}  // namespace
}  // namespace ms::nn
