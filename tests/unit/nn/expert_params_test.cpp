// The spans of experts where ranks of tp hold whole ones.
#include <gtest/gtest.h>

#include "nn/params.h"

namespace ms::nn {
namespace {

// With tp folded, a rank of tp has its own experts as a whole, replicated over edp; without ep all of them.
TEST(ExpertParams, AreWholeOnRanksOfTp) {
  ModelConfig model{
      .family = "llama", .layers = 2, .hidden = 32, .heads = 8, .vocab = 51, .seq = 16, .tied_embeddings = false};
  model.experts = 8, model.expert_ffn_hidden = 24;
  for (const int ep : {1, 4}) {
    const mesh::Mesh mesh{.dp = 2, .tp = 2, .ep = ep, .folds_tp = true};
    for (int dp = 0; dp < 2; ++dp) {
      for (int tp = 0; tp < 2; ++tp) {
        const int ep_rank = mesh.ep_rank({.dp = dp, .tp = tp});
        const auto spans = chunk_spans(model, mesh, tp, chunk_part(model, mesh, 0, 0, 1), 0, kOneSpan, ep_rank);
        ASSERT_EQ(spans.size(), 2U);
        EXPECT_FALSE(spans[0].experts);
        EXPECT_TRUE(spans[1].experts);
        EXPECT_EQ(spans[1].replicated, 0);
        EXPECT_EQ(spans[1].numel % (64 * mesh.edp()), 0);
        for (int e = 0; e < model.experts; ++e) {
          const ParamSpec* const param = spans[1].find(fmt::format("layers.1.mlp.experts.{}.down.weight", e));
          ASSERT_EQ(param != nullptr, e / (model.experts / ep) == ep_rank) << e;
          if (param != nullptr) { EXPECT_EQ(param->numel(), param->shard.global_size()); }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ms::nn
