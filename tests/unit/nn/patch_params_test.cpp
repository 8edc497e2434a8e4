// The projection of patches: each rank of tp projects those of its own tokens, so that the matrix is whole there and
// its gradient a partial sum.
#include <gtest/gtest.h>

#include "nn/params.h"
#include "support/model_shapes.h"

namespace ms::nn {
namespace {

TEST(PatchParams, AreReplicatedOnTheFirstStage) {
  ModelConfig model{.family = "llama", .layers = 4, .hidden = 32, .heads = 8, .kv_heads = 4, .ffn_hidden = 88};
  model.vocab = 51, model.seq = 16, model.tied_embeddings = false, model.patch_size = 2;
  cost::ModelShape shape = cost::llama_shape(4, 32, 8, 4, 88, 51, 16);
  shape.patch_numbers = 12;
  EXPECT_EQ(parameter_count(model), cost::count_parameters(shape).total);
  const mesh::Mesh mesh{1, 2, 2};
  for (int stage = 0; stage < 2; ++stage) {
    const SpanSpec span = chunk_spans(model, mesh, 1, chunk_part(model, mesh, stage, 0, 1), 0).front();
    const ParamSpec* const patches = span.find("embed.patches.weight");
    ASSERT_EQ(patches != nullptr, stage == 0);
    if (patches == nullptr) continue;
    EXPECT_TRUE(patches->shard.replicated && !patches->by_head && !patches->matrix && patches->decay);
    EXPECT_EQ(patches->numel(), 32 * 12);
    EXPECT_LE(patches->offset + patches->numel(), span.replicated);
  }
}

}  // namespace
}  // namespace ms::nn
