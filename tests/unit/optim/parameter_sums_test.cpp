// LAMB needs two sums over each parameter with weight decay, AdamW none.
#include <gtest/gtest.h>

#include "optim/sharded.h"

namespace ms::optim {
namespace {

TEST(ParameterSums, AreThoseOfParametersWithDecayUnderLamb) {
  const ParamRange matrix{"w", 0, 64, true}, vector{"b", 64, 128, false};
  struct Row {
    const char* optimizer;
    std::vector<ParamRange> params;
    std::int64_t sums;
  };
  for (const Row& c : {Row{"adamw", {matrix, vector}, 0}, Row{"lamb", {matrix, vector}, 2}, Row{"lamb", {vector}, 0},
                       Row{"lamb", {matrix, vector, matrix, matrix}, 6}, Row{"lamb", {}, 0}}) {
    SpanLayout layout;
    layout.params = c.params;
    OptimConfig config;
    config.name = c.optimizer;
    EXPECT_EQ(parameter_sums(config, layout), c.sums) << c.optimizer << " of " << c.params.size();
  }
}

TEST(ParameterSums, TakeNoMemoryWhereThereAreNone) {
  tensor::Arena measured = tensor::Arena::measuring();
  EXPECT_FALSE(carve_scalars(measured, 0).parameter_sums);
  EXPECT_EQ(carve_scalars(measured, 10).parameter_sums.cols, 10);
}

// Every registered optimizer, on one span with and without a master copy: the second half of a vector and a matrix.
TEST(Optimizers, CarveTheirStates) {
  SpanLayout layout;
  layout.numel = 128;
  layout.params = {{"vector", 0, 80}, {"matrix", 80, 128, true, {.rows = 6, .cols = 8}}};
  for (const OptimizerKind* kind : optimizer_kinds()) {
    OptimConfig config;
    config.name = kind->name;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      tensor::Arena measured = tensor::Arena::measuring();
      const SpanMemory span =
          carve_span(measured, config, layout, dtype, {.replicas = 2, .replica = 1, .shards = 2}, {});
      EXPECT_EQ(span.master ? 1 : 0, dtype == DType::bf16) << kind->name;
      ASSERT_EQ(span.states.size(), state_names(*kind).size()) << kind->name;
      const bool takes_matrices = !kind->matrix_states.empty();
      for (std::size_t i = 0; i < span.states.size(); ++i) {
        const std::int64_t want = !takes_matrices ? 64 : i < kind->states.size() ? 16 : 48;
        EXPECT_EQ(span.states[i].values.cols, want) << kind->name;
        EXPECT_EQ(static_cast<bool>(span.states[i].of({64, 80})), has_state(*kind, i, false)) << kind->name;
        EXPECT_EQ(static_cast<bool>(span.states[i].of({80, 96})), has_state(*kind, i, true)) << kind->name;
      }
    }
    EXPECT_EQ(kind->sums > 0, kind->issue_sums != nullptr) << kind->name;
  }
}

}  // namespace
}  // namespace ms::optim
