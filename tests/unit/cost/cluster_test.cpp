// Cluster files: what they say arrives, and all that is wrong is said at once.
#include "cost/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"

namespace ms::cost {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kRequired = R"([device]
name = "H100"
capacity = "72GiB"
tflops = 989
memory_rate = 3350
[node]
ranks = 8
)";

constexpr std::string_view kGood = R"([device]
name = "H100"
capacity = "72GiB"
tflops = 989
tflops_fp32 = 494.5
memory_rate = 3350
launch = "4us"
gemm = ["1e9:0.3", "1e11:0.8"]
attention = ["1e9:0.2"]
memory = ["1e5:0.3", "1e8:0.9"]
[node]
ranks = 8
cores = 96
rate = 400
latency = "2500ns"
[network]
rate = 45
latency = "8us"
nodes_per_leaf = 64
spine_share = 0.8
spine_latency = "12us"
[noise]
spread = 0.02
)";

TEST(ClusterFiles, EveryKeyArrives) {
  const Cluster cluster = load_cluster_text(kGood, "c.toml", {});
  EXPECT_EQ(cluster.device.name, "H100");
  EXPECT_EQ(cluster.device.memory_bytes, std::int64_t{72} << 30);
  EXPECT_EQ(cluster.device.tflops, 989);
  EXPECT_EQ(cluster.device.tflops_fp32, 494.5);
  EXPECT_EQ(cluster.device.memory_gb_s, 3350);
  EXPECT_DOUBLE_EQ(cluster.device.launch_s, 4e-6);
  EXPECT_THAT(cluster.device.gemm, ElementsAre("1e9:0.3", "1e11:0.8"));
  EXPECT_THAT(cluster.device.attention, ElementsAre("1e9:0.2"));
  EXPECT_THAT(cluster.device.memory, ElementsAre("1e5:0.3", "1e8:0.9"));
  EXPECT_EQ(cluster.node.ranks, 8);
  EXPECT_EQ(cluster.node.cores, 96);
  EXPECT_EQ(cluster.node.gb_s, 400);
  EXPECT_DOUBLE_EQ(cluster.node.latency_s, 2.5e-6);
  EXPECT_EQ(cluster.network.gb_s, 45);
  EXPECT_DOUBLE_EQ(cluster.network.latency_s, 8e-6);
  EXPECT_EQ(cluster.network.nodes_per_leaf, 64);
  EXPECT_EQ(cluster.network.spine_share, 0.8);
  EXPECT_DOUBLE_EQ(cluster.network.spine_latency_s, 12e-6);
  EXPECT_EQ(cluster.noise.spread, 0.02);
}

TEST(ClusterFiles, WhatIsRequiredIsEnough) {
  const Cluster cluster = load_cluster_text(kRequired, "c.toml", {});
  EXPECT_THAT(cluster.device.gemm, ElementsAre("1:1"));
  EXPECT_THAT(cluster.device.attention, ElementsAre("1:1"));
  EXPECT_THAT(cluster.device.memory, ElementsAre("1:1"));
  EXPECT_EQ(cluster.device.launch_s, 0);
  EXPECT_EQ(cluster.node.cores, 0);
  EXPECT_EQ(cluster.node.gb_s, 0);
  EXPECT_EQ(cluster.network.gb_s, 0);
  EXPECT_EQ(cluster.network.spine_share, 1);
  EXPECT_EQ(cluster.noise.spread, 0);
}

TEST(ClusterFiles, AssignmentsWinOverTheFile) {
  const Cluster cluster = load_cluster_text(
      kGood, "c.toml", {"network.rate=22.5", "device.capacity=64GiB", "device.gemm=1:0.5,2:0.6", "node.ranks=4"});
  EXPECT_EQ(cluster.network.gb_s, 22.5);
  EXPECT_EQ(cluster.device.memory_bytes, std::int64_t{64} << 30);
  EXPECT_THAT(cluster.device.gemm, ElementsAre("1:0.5", "2:0.6"));
  EXPECT_EQ(cluster.node.ranks, 4);
  EXPECT_EQ(cluster.network.spine_share, 0.8) << "what nobody assigned is the file's";
}

TEST(ClusterFiles, KeysOfEarlierVersionsAreRead) {
  std::string old(kGood);
  old.replace(old.find("gemm = "), 4, "products");
  EXPECT_THAT(load_cluster_text(old, "c.toml", {}).device.gemm, ElementsAre("1e9:0.3", "1e11:0.8"));
  EXPECT_THAT(load_cluster_text(kGood, "c.toml", {"device.products=1:0.5"}).device.gemm, ElementsAre("1:0.5"));
}

TEST(ClusterFiles, AnAssignmentCanGiveWhatTheFileLacks) {
  EXPECT_EQ(load_cluster_text(
                "", "c.toml",
                {"device.name=x", "device.capacity=1GiB", "device.tflops=1", "device.memory_rate=2", "node.ranks=3"})
                .node.ranks,
            3);
}

// The message of the refusal.
std::string refusal(std::string_view text, const std::vector<std::string>& assignments) {
  try {
    load_cluster_text(text, "c.toml", assignments);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "config.invalid");
    EXPECT_EQ(error.blame(), Blame::user);
    return error.message();
  }
  return "accepted";
}

TEST(ClusterFiles, AKeyAndItsOldNameAreRefused) {
  std::string both(kGood);
  both.insert(both.find("attention = "), "products = [\"1:1\"]\n");
  EXPECT_THAT(refusal(both, {}), HasSubstr("'device.products' and 'device.gemm' are the same key"));
}

TEST(ClusterFiles, EachProblemIsSaid) {
  struct Case {
    std::string assignment;
    std::vector<std::string> said;
  };
  const Case cases[] = {
      {"network.rat=25", {"network.rat", "network.rate"}},
      {"device.gemm=1e9", {"'1e9'", "device.gemm"}},
      {"device.attention=1e9:2", {"'1e9:2'", "device.attention"}},
      {"device.memory=", {"device.memory"}},
      {"network.rate=1e-300", {"network.rate: must be 0 or at least 0.001 GB/s"}},
      {"node.rate=1e-4", {"node.rate: must be 0 or at least"}},
      {"network.spine_share=0", {"network.spine_share"}},
      {"network.spine_share=1.5", {"network.spine_share"}},
      {"node.ranks=0", {"node.ranks"}},
      {"node.latency=fast", {"node.latency"}},
      {"device.tflops=0", {"device.tflops"}},
      {"noise.spread=-1", {"noise.spread"}},
  };
  for (const Case& c : cases) {
    const std::string message = refusal(kGood, {c.assignment});
    for (const std::string& said : c.said) EXPECT_THAT(message, HasSubstr(said)) << c.assignment;
    EXPECT_THAT(message, Not(HasSubstr("problems in"))) << "one mistake, one problem: " << c.assignment;
  }
  for (const char* key : {"device.name", "device.capacity", "device.tflops", "device.memory_rate", "node.ranks"})
    EXPECT_THAT(refusal("", {}), HasSubstr(key));
}

TEST(ClusterFiles, AllProblemsAtOnce) {
  const std::string message = refusal(R"([device]
name = "H100"
capacity = "72GiB"
memory_rate = 3350
gemm = ["1e9:0.3", "1e10:30"]
[node]
ranks = 8
speed = 400
[noise]
spread = 2
)",
                                      {"device.memory=fast", "network.latency=5parsecs"});
  for (const char* said : {"6 problems", "device.tflops", "node.speed", "'1e10:30' of device.gemm",
                           "'fast' of device.memory", "noise.spread", "network.latency"}) {
    EXPECT_THAT(message, HasSubstr(said));
  }
  EXPECT_THAT(message, HasSubstr("c.toml:5:")) << "a curve is wrong where it was written";
}

TEST(ClusterFiles, ThoseOfTheTreeLoad) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(MS_SOURCE_DIR) + "/configs/clusters")) {
    EXPECT_NO_THROW(load_cluster(entry.path(), {})) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 0);
  EXPECT_THROW(load_cluster(std::string(MS_SOURCE_DIR) + "/configs/clusters/there is none.toml", {}), Error);
}

}  // namespace
}  // namespace ms::cost
