// Seconds of operations against arithmetic by hand, and the slowest of many against the integral that it approximates.
#include "cost/roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

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
  device.memory_gb_s = 1000;
  device.launch_s = 1e-3;
  device.gemm = {"1e12:0.5", "1e14:1"};
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

// The expected maximum of n is the integral of 1 - F^n right of 0 less that of F^n left of it, F being the distribution
// of one. By the midpoint rule: what lies beyond 12 deviations is less than 1e-28.
double integrated_maximum(double n) {
  constexpr double kStep = 1e-3, kEnd = 12;
  double sum = 0;
  for (double x = kStep / 2; x < kEnd; x += kStep) {
    const double tail = 0.5 * std::erfc(x / std::sqrt(2.0));
    const double below = std::exp(n * std::log1p(-tail));  // F(x)^n
    const double left = std::pow(tail, n);                 // F(-x)^n
    sum += ((1 - below) - left) * kStep;
  }
  return sum;
}

TEST(SlowestOfMany, TheIntegralIsRight) {
  // Known in closed form: 1 / sqrt(pi) of two, 1.5 / sqrt(pi) of three.
  EXPECT_NEAR(integrated_maximum(2), 0.5641895835, 1e-6);
  EXPECT_NEAR(integrated_maximum(3), 0.8462843753, 1e-6);
}

TEST(SlowestOfMany, ExpectedMaximumIsNearTheIntegral) {
  for (const double n : {2, 3, 4, 5, 7, 10, 30, 100, 300, 1000, 4096, 12288, 100'000, 1'000'000})
    EXPECT_NEAR(expected_maximum(n), integrated_maximum(n), 0.03) << n;
}

TEST(SlowestOfMany, OneIsAverageAndMoreAreSlower) {
  EXPECT_EQ(expected_maximum(1), 0);
  EXPECT_EQ(expected_maximum(0), 0);
  double last = 0;
  for (int n = 2; n < 3000; ++n) {
    const double now = expected_maximum(n);
    ASSERT_GT(now, last) << n;
    last = now;
  }
  const NoiseConfig noise{.spread = 0.02};
  EXPECT_EQ(slowest_of(noise, 1), 1);
  EXPECT_DOUBLE_EQ(slowest_of(noise, 1000), 1 + 0.02 * expected_maximum(1000));
  EXPECT_EQ(slowest_of({}, 12288), 1) << "all are alike";
}

}  // namespace
}  // namespace ms::cost
