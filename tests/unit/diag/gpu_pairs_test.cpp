#include "diag/gpu_pairs.h"

#include <gtest/gtest.h>

namespace ms::diag {
namespace {

GpuPairs healthy(std::size_t gpus, double gbps) {
  std::vector<std::string> names;
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) names.push_back(fmt::format("gpu {}", gpu));
  GpuPairs pairs(names);
  for (std::size_t a = 0; a < gpus; ++a) {
    for (std::size_t b = 0; b < gpus; ++b) pairs.gbps[a][b] = a == b ? 0 : gbps;
  }
  return pairs;
}
void slow_down(GpuPairs& pairs, std::size_t a, std::size_t b, double gbps) { pairs.gbps[a][b] = gbps; }

TEST(GpuPairs, AccuseNobodyOnAHealthyNode) {
  for (std::size_t gpus : {2, 3, 4, 8, 16}) {
    GpuPairs pairs = healthy(gpus, 300);
    for (std::size_t a = 0; a < gpus; ++a) {
      for (std::size_t b = 0; b < gpus; ++b) {
        if (a != b) pairs.gbps[a][b] *= 0.8 + 0.05 * static_cast<double>((a * 5 + b * 3) % 9);
      }
    }
    EXPECT_TRUE(slow_gpus(pairs).empty()) << gpus;
    EXPECT_TRUE(wrong_gpus(pairs).empty()) << gpus;
  }
}

TEST(GpuPairs, NameTheOneGpuThatIsSlowEitherWay) {
  for (const bool sends : {true, false}) {
    GpuPairs pairs = healthy(8, 300);
    for (std::size_t other = 0; other < 8; ++other) {
      if (other != 5) sends ? slow_down(pairs, 5, other, 40) : slow_down(pairs, other, 5, 40);
    }
    const std::vector<Finding> slow = slow_gpus(pairs);
    ASSERT_EQ(slow.size(), 1U);
    EXPECT_EQ(slow[0].entity, "gpu 5");
    EXPECT_EQ(slow[0].severity, Severity::warning);
    EXPECT_NE(slow[0].message.find("40 GB/s at best each way, and pairs without it reach 300"), std::string::npos)
        << slow[0].message;
    EXPECT_EQ(typical_gbps(pairs, 5), 40);
    EXPECT_EQ(typical_gbps(pairs, 4), 300);  // one slow pair of seven
  }
}

// Two sockets with four GPUs each, and bridges between neighbours: pairs differ by design, GPUs do not.
TEST(GpuPairs, AccuseNobodyForTheNodesOwnShape) {
  GpuPairs sockets = healthy(8, 12), bridges = healthy(8, 20);
  for (std::size_t a = 0; a < 8; ++a) {
    for (std::size_t b = 0; b < 8; ++b) {
      if (a != b && a / 4 == b / 4) sockets.gbps[a][b] = 25;
      if (a != b && a / 2 == b / 2) bridges.gbps[a][b] = 200;
    }
  }
  EXPECT_TRUE(slow_gpus(sockets).empty());
  EXPECT_TRUE(slow_gpus(bridges).empty());
}

// Of two or three GPUs it cannot be told which one makes a pair slow; of a pair neither is.
TEST(GpuPairs, AccuseNobodyWhereItCannotBeTold) {
  GpuPairs three = healthy(3, 300);
  for (std::size_t other : {0, 1}) slow_down(three, 2, other, 10);
  EXPECT_TRUE(slow_gpus(three).empty());
  GpuPairs pair = healthy(8, 300);
  slow_down(pair, 2, 3, 10);
  EXPECT_TRUE(slow_gpus(pair).empty());
}

TEST(GpuPairs, NameWhoseWordsAreWrong) {
  GpuPairs sender = healthy(4, 300), receiver = healthy(4, 300), pair = healthy(4, 300), two = healthy(2, 300);
  for (std::size_t other : {0, 1, 3}) {
    sender.wrong[2][other] = 1;
    receiver.wrong[other][2] = 2;
  }
  pair.wrong[1][3] = 7;
  two.wrong[0][1] = 1;
  const auto only = [](const GpuPairs& pairs) {
    const std::vector<Finding> findings = wrong_gpus(pairs);
    return findings.size() == 1 ? findings[0].entity + ": " + findings[0].message : std::to_string(findings.size());
  };
  EXPECT_EQ(only(sender), "gpu 2: 3 words that it sent arrived wrong at all other GPUs");
  EXPECT_EQ(only(receiver), "gpu 2: 6 words that all other GPUs sent it arrived wrong");
  EXPECT_EQ(only(pair), "gpu 1 to gpu 3: 7 words that arrived are not what was sent");
  EXPECT_EQ(only(two), "gpu 0 to gpu 1: 1 words that arrived are not what was sent");
  sender.wrong[0][1] = 1;  // beside a GPU, another pair
  EXPECT_EQ(wrong_gpus(sender).size(), 2U);
}

}  // namespace
}  // namespace ms::diag
