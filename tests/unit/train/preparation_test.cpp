// What a rank is to make ready is what it issues.
#include "train/preparation.h"

#include <gtest/gtest.h>

#include <set>

namespace ms::train {
namespace {

Plan plan_of(std::int64_t pp, std::int64_t layers) {
  Settings settings;
  settings.model = {.layers = layers, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32, .tied_embeddings = true};
  settings.mesh = {.pp = pp};
  settings.train.global_batch = 8;
  settings.train.microbatch = 1;
  return make_plan(settings, static_cast<int>(pp));
}

// Products by their sizes.
std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> products_of(const std::vector<tensor::Op>& ops) {
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> products;
  for (const tensor::Op& op : ops) {
    if (const auto* product = std::get_if<tensor::Matmul>(&op))
      products.insert({product->c.rows, product->c.cols, product->transpose_a ? product->a.rows : product->a.cols});
  }
  return products;
}

TEST(Preparation, HasEveryFormOfAStepOnce) {
  const std::vector<tensor::Op> ops = operations_of_step(plan_of(1, 2), 1, 0);
  // Forward, gradient of the input, gradient of the weights: of queries, keys and values; of attention's output; of the
  // block's two; of the head.
  EXPECT_EQ(products_of(ops), (std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{{32, 192, 64},
                                                                                              {32, 64, 192},
                                                                                              {192, 64, 32},
                                                                                              {32, 64, 64},
                                                                                              {64, 64, 32},
                                                                                              {32, 256, 64},
                                                                                              {32, 64, 256},
                                                                                              {256, 64, 32},
                                                                                              {64, 256, 32},
                                                                                              {32, 257, 64},
                                                                                              {32, 64, 257},
                                                                                              {257, 64, 32}}));
  const auto count = [&](std::string_view name) {
    return std::ranges::count_if(ops, [&](const tensor::Op& op) { return tensor::op_name(op) == name; });
  };
  EXPECT_EQ(count("attention_fwd"), 1);
  EXPECT_EQ(count("attention_bwd"), 1);
  // Layers that are like those before add tensors at other places, at the most.
  EXPECT_EQ(products_of(operations_of_step(plan_of(1, 6), 1, 0)), products_of(ops));
}

TEST(Preparation, OnlyTheLastStageHasTheHead) {
  const Plan plan = plan_of(2, 4);
  EXPECT_FALSE(products_of(operations_of_step(plan, 2, 0)).contains({32, 257, 64}));
  EXPECT_TRUE(products_of(operations_of_step(plan, 2, 1)).contains({32, 257, 64}));
}

}  // namespace
}  // namespace ms::train
