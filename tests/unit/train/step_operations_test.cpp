// What a rank computes in a step, without computing it.
#include "train/simulate/step_operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "train/commands/show_plan.h"

namespace ms::train {
namespace {

Plan plan_of(std::int64_t pp, std::int64_t layers) {
  Settings settings;
  settings.model = {.layers = layers, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32, .tied_embeddings = true};
  settings.mesh = {.pp = pp};
  settings.model.vocab_multiple = 1;  // the work of padding is none of the model's
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

TEST(StepOperations, HasEveryFormOfAStepOnce) {
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

TEST(StepOperations, OnlyTheLastStageHasTheHead) {
  const Plan plan = plan_of(2, 4);
  EXPECT_FALSE(products_of(operations_of_step(plan, 2, 0)).contains({32, 257, 64}));
  EXPECT_TRUE(products_of(operations_of_step(plan, 2, 1)).contains({32, 257, 64}));
}

TEST(StepOperations, WorkIsWhatTheModelTakes) {
  const Plan plan = plan_of(1, 4);
  const StepWork work = work_of_step(plan, 0);
  const auto of = [&](cost::OpClass op_class) { return work[static_cast<std::size_t>(op_class)]; };
  const cost::FlopsPerToken flops = cost::flops_per_token(plan.model_shape());
  const auto tokens = static_cast<double>(plan.tokens_per_step());
  EXPECT_NEAR(of(cost::OpClass::matmul).flops / (flops.gemm * tokens), 1, 1e-6);
  // Forward two products of scores, backward five, of which the model's count has four.
  EXPECT_NEAR(of(cost::OpClass::attention).flops / ((flops.causal - flops.gemm) * tokens), 7.0 / 6, 1e-6);
  // A parameter's master and moments are read and written, its gradient read, itself written.
  const auto parameters = static_cast<double>(cost::count_parameters(plan.model_shape()).total);
  EXPECT_NEAR(of(cost::OpClass::optimizer).bytes / parameters, 24 + 4 + 2, 4.5);
  EXPECT_EQ(of(cost::OpClass::init).bytes, 0);
  EXPECT_EQ(of(cost::OpClass::attention).operations, 2 * 4 * plan.microbatches);
}

TEST(StepOperations, LeastTimesAreThoseOfTheSlowerCeiling) {
  const Plan plan = plan_of(1, 4);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const StepWork work = work_of_step(plan, 0);
  const auto times = [&](double flops, double bytes_per_s) {
    return work_of_step(plan, 0,
                        cost::Ceilings{.bf16_flops = flops, .fp8_flops = 2 * flops, .bytes_per_s = bytes_per_s});
  };
  const StepWork of_flops = times(1e9, kInfinite), of_bytes = times(kInfinite, 1e9), of_both = times(1e9, 1e9);
  for (std::size_t i = 0; i < cost::kOpClasses; ++i) {
    EXPECT_EQ(work[i].least_s, 0);
    EXPECT_NEAR(of_flops[i].least_s, work[i].flops * 1e-9, work[i].flops * 1e-15);
    EXPECT_NEAR(of_bytes[i].least_s, work[i].bytes * 1e-9, work[i].bytes * 1e-15);
    EXPECT_GE(of_both[i].least_s, std::max(of_flops[i].least_s, of_bytes[i].least_s) * (1 - 1e-6));
    EXPECT_LE(of_both[i].least_s, of_flops[i].least_s + of_bytes[i].least_s);
  }
}

TEST(ShowPlan, ADeviceBoundsTheStep) {
  const Plan plan = plan_of(2, 4);
  const PlanDevice device{.name = "h200", .ceilings = cost::known_ceilings("h200").value()};
  EXPECT_THAT(plan_text(plan, device), testing::HasSubstr("MFU at most: gemm"));
  const auto roofline = nlohmann::json::parse(plan_json(plan, device)).at("roofline");
  ASSERT_EQ(roofline.at("least_s").size(), 2U);
  double slowest = 0;
  for (const auto& stage : roofline.at("least_s")) {
    double sum = 0;
    for (const auto& [name, seconds] : stage.items()) sum += seconds.get<double>();
    slowest = std::max(slowest, sum);
  }
  EXPECT_GE(roofline.at("step_s").get<double>(), slowest);  // the pipeline's bubble comes on top
  EXPECT_GT(roofline.at("mfu").at("gemm").get<double>(), 0);
  EXPECT_LT(roofline.at("mfu").at("gemm").get<double>(), 1);
  EXPECT_FALSE(nlohmann::json::parse(plan_json(plan)).contains("roofline"));
}

TEST(StepOperations, StagesShareTheWork) {
  const StepWork whole = work_of_step(plan_of(1, 4), 0);
  const Plan plan = plan_of(2, 4);
  const StepWork first = work_of_step(plan, 0), last = work_of_step(plan, 1);
  constexpr auto kMatmul = static_cast<std::size_t>(cost::OpClass::matmul);
  EXPECT_DOUBLE_EQ(first[kMatmul].flops + last[kMatmul].flops, whole[kMatmul].flops);
  EXPECT_LT(first[kMatmul].flops, last[kMatmul].flops);  // the head
}

}  // namespace
}  // namespace ms::train
