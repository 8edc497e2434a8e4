// What LAMB scales: the parameters that decay, and nothing under another optimizer.
#include <gtest/gtest.h>

#include "optim/sharded.h"

namespace ms::optim {
namespace {

TEST(ScaledParameters, AreThoseThatDecayUnderLamb) {
  const Piece matrix{"w", 0, 64, true}, vector{"b", 64, 128, false};
  struct Row {
    const char* optimizer;
    std::vector<Piece> pieces;
    std::int64_t scaled;
  };
  for (const Row& c : {Row{"adamw", {matrix, vector}, 0}, Row{"lamb", {matrix, vector}, 1}, Row{"lamb", {vector}, 0},
                       Row{"lamb", {matrix, vector, matrix, matrix}, 3}, Row{"lamb", {}, 0}}) {
    SpanLayout layout;
    layout.pieces = c.pieces;
    OptimConfig config;
    config.name = c.optimizer;
    EXPECT_EQ(scaled_parameters(config, layout), c.scaled) << c.optimizer << " of " << c.pieces.size();
  }
}

// AdamW's scalars take no more room than they did; LAMB's take two numbers a parameter.
TEST(ScaledParameters, HaveTwoNormsEach) {
  tensor::Arena measured = tensor::Arena::measuring();
  EXPECT_FALSE(carve_scalars(measured, 0).lamb_norms);
  EXPECT_EQ(carve_scalars(measured, 5).lamb_norms.cols, 10);
}

}  // namespace
}  // namespace ms::optim
