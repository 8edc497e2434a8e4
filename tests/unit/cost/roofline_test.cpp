// Seconds of operations against arithmetic by hand, and the slowest of many against samples and a table.
#include "cost/roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "base/error.h"

namespace ms::cost {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(Curves, PointsComeBySize) {
  EXPECT_THAT(parse_curve({"1e5:0.6", "10:0.25", "1000:1"}, "k").points,
              ElementsAre(Pair(10, 0.25), Pair(1000, 1), Pair(1e5, 0.6)));
}

TEST(Curves, Refusals) {
  const std::vector<std::string> bad[] = {
      {},          {""},      {":"},     {"1"},         {"1:"},         {":0.5"},      {"x:0.5"},  {"1:x"},
      {"0:0.5"},   {"-1:.5"}, {"1:0"},   {"1:-0.5"},    {"1:1.000001"}, {"1:0.5:1"},   {"1:0.5 "}, {" 1:0.5"},
      {"inf:0.5"}, {"nan:1"}, {"1:nan"}, {"1e999:0.5"}, {"1;0.5"},      {"1:0.5", "2"}};
  for (const auto& points : bad) {
    const std::string shown = points.empty() ? "no point" : points.back();
    try {
      parse_curve(points, "device.gemm");
      ADD_FAILURE() << "accepted: " << shown;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "cluster.curve");
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_THAT(error.message(), HasSubstr("device.gemm"));
      if (!points.empty()) { EXPECT_THAT(error.message(), HasSubstr("'" + shown + "'")); }
    }
  }
}

TEST(Curves, BetweenPointsOverTheLogarithmOfTheSize) {
  const Curve curve = parse_curve({"1e3:0.2", "1e5:0.6", "1e6:0.5"}, "k");
  struct Case {
    double size, share;
  };
  const Case cases[] = {
      {1e3, 0.2},
      {1e5, 0.6},
      {1e6, 0.5},  // the points
      {1e4, 0.4},
      {std::sqrt(1e7), 0.3},
      {std::sqrt(1e11), 0.55},  // between them, also where it falls
      {1, 0.2},
      {999, 0.2},
      {1e6 + 1, 0.5},
      {1e15, 0.5},  // level beyond the ends
      {0, 0.2},
  };
  for (const Case& c : cases) EXPECT_NEAR(curve.at(c.size), c.share, 1e-12) << c.size;
  const Curve level = parse_curve({"7:0.3"}, "k");
  for (const double size : {1e-3, 7.0, 1e12}) EXPECT_EQ(level.at(size), 0.3);
}

// 100 and 50 TFLOP/s, 1 TB/s, and curves that show whether the size is FLOPs or bytes.
DeviceConfig device() {
  DeviceConfig device;
  device.tflops = 100;
  device.tflops_fp32 = 50;
  device.tflops_fp8 = 200;
  device.memory_gb_s = 1000;
  device.launch_s = 1e-3;
  device.gemm = {"1e12:0.5", "1e14:1"};
  device.gemm_fp8 = {"1e12:0.25", "1e14:0.5"};
  device.attention = {"1:0.25"};
  device.memory = {"1e9:0.5", "1e11:1"};
  return device;
}

TEST(Roofline, AsLongAsArithmeticOrMemory) {
  struct Case {
    const char* what;
    OpCost op;
    double seconds;  // besides the launch
  };
  const OpClass product = OpClass::matmul, attention = OpClass::attention, memory = OpClass::norm;
  const Case cases[] = {
      {"nothing", {}, 0},
      {"a product of 16 bits", {.op_class = product, .half = true, .flops = 1e12}, 1e12 / (1e14 * 0.5)},
      {"a product of 32 bits", {.op_class = product, .half = false, .flops = 1e12}, 1e12 / (0.5e14 * 0.5)},
      {"a larger one", {.op_class = product, .half = true, .flops = 1e13}, 1e13 / (1e14 * 0.75)},
      {"a product of 8 bits", {.op_class = product, .half = true, .fp8 = true, .flops = 1e12}, 1e12 / (2e14 * 0.25)},
      {"and its rounding, a kernel of its own",
       {.op_class = product, .half = true, .fp8 = true, .flops = 1e12, .bytes = 3e9, .cast_bytes = 1e9},
       1e12 / (2e14 * 0.25) + 1e-3 + 1e9 / (1e12 * 0.5)},
      {"ten of them, each with a launch",
       {.op_class = product, .half = true, .flops = 1e13, .gemms = 10},
       9e-3 + 1e13 / (1e14 * 0.5)},
      {"attention", {.op_class = attention, .half = true, .flops = 1e12}, 1e12 / (1e14 * 0.25)},
      {"attention of 32 bits", {.op_class = attention, .half = false, .flops = 1e12}, 1e12 / (0.5e14 * 0.25)},
      {"memory", {.op_class = memory, .bytes = 1e9}, 1e9 / (1e12 * 0.5)},
      {"more memory", {.op_class = memory, .bytes = 1e10}, 1e10 / (1e12 * 0.75)},
      {"FLOPs of other operations", {.op_class = memory, .flops = 1e15, .bytes = 1e9}, 2e-3},
      {"a product that memory holds back", {.op_class = product, .half = true, .flops = 1e12, .bytes = 1e11}, 0.1},
      {"one that arithmetic holds back", {.op_class = product, .half = true, .flops = 1e12, .bytes = 1e9}, 0.02},
  };
  const Roofline roofline(device());
  for (const Case& c : cases) EXPECT_NEAR(roofline.seconds(c.op), 1e-3 + c.seconds, 1e-12) << c.what;
}

TEST(Roofline, WithoutAPeakOfFp32ASixteenth) {
  DeviceConfig config = device();
  config.tflops_fp32 = 0;
  config.launch_s = 0;
  const OpCost op{.op_class = OpClass::attention, .half = false, .flops = 1e12};
  EXPECT_NEAR(Roofline(config).seconds(op), 16 * 1e12 / (1e14 * 0.25), 1e-12);
}

TEST(Roofline, ClassesTakeTheirTimes) {
  DeviceConfig config = device();
  config.classes = {"norm:3", "loss:0.5"};
  const auto seconds = [&](OpClass op_class) {
    return Roofline(config).seconds({.op_class = op_class, .bytes = 1e9}) - config.launch_s;
  };
  EXPECT_NEAR(seconds(OpClass::norm), 3 * seconds(OpClass::elementwise), 1e-12);
  EXPECT_NEAR(seconds(OpClass::loss), seconds(OpClass::elementwise) / 2, 1e-12);
  for (const char* text : {"norm", "norm:", "norm:0", "norm:x", "matmul:2", "attention:2", "speed:2", ":2", ""})
    EXPECT_THROW(parse_classes({text}), Error) << text;
}

TEST(Roofline, RefusesABadCurve) {
  DeviceConfig config = device();
  config.attention = {"1e9"};
  EXPECT_THROW(Roofline{config}, Error);
}

double share_below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// All n are below the median of their maximum as often as not.
TEST(SlowestOfMany, IsTheMedianOfTheMaximum) {
  for (const double n : {1, 2, 3, 4, 7, 30, 300, 4096, 12288, 1'000'000})
    EXPECT_NEAR(std::pow(share_below(slowest_deviations(n)), n), 0.5, 1e-4) << n;
}

TEST(SlowestOfMany, OneIsAverageAndMoreAreSlower) {
  EXPECT_NEAR(slowest_deviations(1), 0, 1e-8);
  double last = 0;
  for (int n = 2; n < 3000; ++n) {
    const double now = slowest_deviations(n);
    ASSERT_GT(now, last) << n;
    last = now;
  }
  const NoiseConfig noise{.spread = 0.02};
  EXPECT_NEAR(slowest_of(noise, 1), 1, 1e-9);
  EXPECT_DOUBLE_EQ(slowest_of(noise, 1000), 1 + 0.02 * slowest_deviations(1000));
  EXPECT_EQ(slowest_of({}, 12288), 1) << "all are alike";
}

// The slowest of as many groups is that of all their nodes; the expected maxima of Blom's table for single nodes.
TEST(SlowestOfMany, GroupsDifferAndTheSlowestIsTheSlowestOfAll) {
  constexpr double kEight[] = {-1.4236, -0.8522, -0.4728, -0.1525, 0.1525, 0.4728, 0.8522, 1.4236};
  for (int place = 1; place <= 8; ++place)
    EXPECT_NEAR(slowest_deviations(1, place, 8), kEight[place - 1], 0.02) << place;
  EXPECT_NEAR(slowest_deviations(4, 8, 8), slowest_deviations(1, 32, 32), 0.03);
  for (int place = 2; place <= 8; ++place)
    EXPECT_GT(slowest_deviations(4, place, 8), slowest_deviations(4, place - 1, 8));
  EXPECT_GT(slowest_of({.spread = 1}, 1, 1, 1000), 0) << "nothing takes no time";
}

// Simulated: 20,000 times eight groups of four.
TEST(SlowestOfMany, IsWhatSamplesSay) {
  constexpr int kTimes = 20'000;
  constexpr int kNodes = 4;
  const double median = slowest_deviations(kNodes);  // of one group
  std::mt19937_64 random(8);
  std::normal_distribution<double> node;
  std::array<double, 8> sums{};
  int below = 0;
  for (int time = 0; time < kTimes; ++time) {
    std::array<double, 8> slowest{};
    for (double& group : slowest) {
      group = node(random);
      for (int i = 1; i < kNodes; ++i) group = std::max(group, node(random));
      below += group < median;
    }
    std::ranges::sort(slowest);
    for (std::size_t i = 0; i < slowest.size(); ++i) sums[i] += slowest[i];
  }
  for (int place = 1; place <= 8; ++place)
    EXPECT_NEAR(slowest_deviations(kNodes, place, 8), sums[static_cast<std::size_t>(place - 1)] / kTimes, 0.025)
        << place;
  EXPECT_NEAR(below / (8.0 * kTimes), 0.5, 0.01);
}

}  // namespace
}  // namespace ms::cost
