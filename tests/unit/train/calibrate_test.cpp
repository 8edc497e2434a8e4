// A calibration of the smallest models: what it writes is a cluster file, and a step can be simulated on it. How near
// that comes to a run is measured by tests/bench/calibration.sh.
#include "train/simulate/calibrate.h"

#include <gtest/gtest.h>

#include "cost/roofline.h"
#include "train/simulate/simulate.h"

namespace ms::train {
namespace {

TEST(Calibrate, WritesAClusterFileThatAStepCanBeSimulatedOn) {
  std::size_t timed = 0, of = 0;
  const cost::Cluster measured =
      calibrate({.sizes = 1, .ranks = 2, .dtype = tensor::DType::f32, .progress = [&](auto done, auto all) {
                   EXPECT_EQ(done, timed + 1);
                   timed = done;
                   of = all;
                 }});
  EXPECT_GT(of, 1U);
  EXPECT_EQ(timed, of);
  const cost::Cluster cluster = cost::load_cluster_text(cost::to_toml(measured), "calibrated", {});
  EXPECT_EQ(cluster.node.ranks, 2);
  EXPECT_GT(cluster.node.gb_s, 0);
  EXPECT_GT(cluster.node.latency_s, 0);
  EXPECT_GT(cluster.device.launch_s, 0);
  EXPECT_DOUBLE_EQ(cluster.device.tflops, cluster.device.tflops_fp32);
  const auto seconds = [&](double flops) {
    return cost::Roofline(cluster.device).seconds({.op_class = cost::OpClass::matmul, .flops = flops});
  };
  EXPECT_GT(seconds(1e9), seconds(1e6));  // more work takes longer

  Settings settings;
  settings.model = {.layers = 2, .hidden = 32, .heads = 4, .vocab = 257, .seq = 32, .tied_embeddings = false};
  settings.mesh = {.dp = 2};
  settings.train.dtype = "fp32";
  settings.train.global_batch = 4;
  const Simulation simulation = simulate(make_plan(settings, 2), cluster, {});
  EXPECT_GT(simulation.tokens_per_s, 100);
  EXPECT_LT(simulation.tokens_per_s, 1e8);
}

}  // namespace
}  // namespace ms::train
