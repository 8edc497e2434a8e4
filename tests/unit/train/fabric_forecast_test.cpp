// Simulated steps in which flows collide.
#include "train/simulate/fabric_forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/simulate/simulate.h"

namespace ms::train {
namespace {

using ::testing::HasSubstr;

// Nodes of four ranks, two under a leaf switch, on a network so slow that transfers take most of the step.
cost::Cluster leaves_of_two() {
  return cost::load_cluster_text(
      "[device]\nname = 'D'\ncapacity = '1GiB'\ntflops = 100\nmemory_rate = 1000\n"
      "[node]\nranks = 4\nrate = 1e6\n[network]\nrate = 1e-3\nnodes_per_leaf = 2\n",
      "cluster", {});
}

Plan two_stages() {
  Settings settings;
  settings.model = {.layers = 16, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32};
  settings.mesh = {.dp = 4, .pp = 2, .tp = 2};
  settings.train.global_batch = 32;
  settings.train.microbatch = 1;
  return make_plan(settings, 16);
}

// Two stages of two nodes each, under leaf switches of their own with one uplink: both transfers of a rail share it.
clos::Fabric two_leaves(std::int64_t uplinks) {
  clos::Fabric fabric;
  fabric.host = {.ranks = 4, .nics = 4};
  fabric.leaf = {.hosts = 2, .uplinks = uplinks};
  fabric.spine.switches = uplinks;
  return fabric;
}

TEST(FabricForecast, CollisionsSlowTheAxisThatPassesTheSpines) {
  cost::Cluster cluster = leaves_of_two();
  const Plan plan = two_stages();
  const Simulation before = simulate(plan, cluster, {});
  EXPECT_TRUE(before.network.empty());
  const Simulation slow = simulate(plan, cluster, {.network = forecast_network(two_leaves(1), plan, cluster)});
  ASSERT_EQ(slow.network.size(), 2U);
  EXPECT_EQ(slow.network[0].axis, "dp");
  EXPECT_EQ(slow.network[0].slowest_median, 1);
  EXPECT_EQ(slow.network[1].axis, "pp");
  EXPECT_EQ(slow.network[1].slowest_median, 0.5);
  EXPECT_GT(slow.iteration_s, 1.02 * before.iteration_s);
  EXPECT_DOUBLE_EQ(slow.network_s, slow.iteration_s - before.iteration_s);
  EXPECT_GT(slow.parts.pp_s, 1.2 * before.parts.pp_s);
}

TEST(FabricForecast, AFabricWithoutCollisionsChangesNoTime) {
  cost::Cluster cluster = leaves_of_two();
  const Plan plan = two_stages();
  clos::Fabric fabric = two_leaves(2);
  fabric.ecmp.hash = "adaptive";
  const Simulation with = simulate(plan, cluster, {.network = forecast_network(fabric, plan, cluster)});
  EXPECT_EQ(with.network.size(), 2U);
  EXPECT_EQ(with.iteration_s, simulate(plan, cluster, {}).iteration_s);
  EXPECT_EQ(with.network_s, 0);
}

TEST(FabricForecast, FabricsOfOtherHostsAreRefused) {
  const Plan plan = two_stages();
  const auto refusal = [&](const clos::Fabric& fabric, const cost::Cluster& cluster) {
    try {
      forecast_network(fabric, plan, cluster);
    } catch (const Error& error) { return std::string(error.kind()) + " " + std::string(error.hint()); }
    return std::string("accepted");
  };
  cost::Cluster cluster = leaves_of_two();
  cluster.network.nodes_per_leaf = 2;
  EXPECT_EQ(refusal(two_leaves(1), cluster), "accepted");
  EXPECT_THAT(refusal(clos::Fabric{}, cluster), HasSubstr("simulate.fabric set host.ranks"));
  cluster.network.nodes_per_leaf = 3;
  EXPECT_THAT(refusal(two_leaves(1), cluster), HasSubstr("network.nodes_per_leaf=2"));
  cluster.network.nodes_per_leaf = 2;
  cluster.network.spine_share = 0.5;
  EXPECT_THAT(refusal(two_leaves(1), cluster), HasSubstr("network.spine_share=1"));
}

}  // namespace
}  // namespace ms::train
