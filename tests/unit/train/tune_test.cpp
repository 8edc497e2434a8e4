// The search for a layout: what it finds against trying everything by hand, and what it says of the rest.
#include "train/commands/show_tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "train/engine/rank_tensors.h"

namespace ms::train {
namespace {

using ::testing::HasSubstr;

cost::Cluster cluster_of(const std::string& capacity) {
  return cost::load_cluster_text("[device]\nname = 'D'\ncapacity = '" + capacity +
                                     "'\ntflops = 10\nmemory_rate = 1000\nlaunch = '1us'\n"
                                     "[node]\nranks = 4\nrate = 50\nlatency = '2us'\n"
                                     "[network]\nrate = 10\nlatency = '5us'\n",
                                 "cluster", {});
}

Settings model() {
  Settings settings;
  settings.model = {.layers = 4, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32, .tied_embeddings = true};
  settings.train.global_batch = 16;
  settings.train.microbatch = 1;
  settings.mesh = {.dp = 4};
  return settings;
}

TEST(Tune, FindsWhatTryingEverythingFinds) {
  const Settings settings = model();
  const cost::Cluster cluster = cluster_of("1GiB");
  const Tuning tuning = tune(settings, cluster, 4, {.keep = 5});
  ASSERT_EQ(tuning.best.size(), 5U);
  for (std::size_t i = 1; i < tuning.best.size(); ++i)
    EXPECT_LE(tuning.best[i - 1].simulation.iteration_s, tuning.best[i].simulation.iteration_s);
  double best = HUGE_VAL;
  for (const std::int64_t tp : {1, 2, 4}) {
    for (const std::int64_t pp : {1, 2, 4}) {
      if (tp * pp > 4) continue;
      for (const std::int64_t microbatch : {1, 2, 4, 8}) {
        for (const std::int64_t chunks : {1, 2, 4}) {
          for (const bool overlap : {false, true}) {
            Settings s = settings;
            s.mesh = {.dp = 4 / (tp * pp), .pp = pp, .tp = tp, .chunks = chunks};
            s.train.microbatch = microbatch;
            s.overlap.tp = overlap;
            if (chunks * pp > 4 || !problems_between(s).empty()) continue;
            best = std::min(best, simulate(make_plan(s, 4), cluster, {.parts = false}).iteration_s);
          }
        }
      }
    }
  }
  EXPECT_LE(tuning.best.front().simulation.iteration_s, best * (1 + 1e-9));
  ASSERT_TRUE(tuning.given.has_value());
  EXPECT_LE(tuning.best.front().simulation.iteration_s, tuning.given->simulation.iteration_s);
  EXPECT_EQ(tuning.not_reached, 0U);
}

// Without patience only the most promising layout is simulated.
TEST(Tune, KeepsTheGivenLayoutWhereNothingFasterWasReached) {
  const cost::Cluster cluster = cluster_of("1GiB");
  const Settings fastest = tune(model(), cluster, 4, {}).best.front().settings;
  const Tuning tuning = tune(fastest, cluster, 4, {.patience_s = 0});
  EXPECT_GT(tuning.not_reached, 0U);
  ASSERT_TRUE(tuning.keeps_given());
  EXPECT_LT(tuning.given->simulation.iteration_s, tuning.best.front().simulation.iteration_s);
  EXPECT_EQ(to_toml(tuning.fastest().settings), to_toml(fastest));
  const std::string text = tuning_text(tuning, cluster);
  EXPECT_THAT(text, HasSubstr("given  kept: nothing faster was found"));
  EXPECT_THAT(text, HasSubstr("    1  " + why_slower(tuning.best.front(), tuning.fastest())));
  EXPECT_THAT(tuning_json(tuning), HasSubstr("\"keeps_given\": true"));
}

// Ranks that divide the experts have fewer gradients to reduce.
TEST(Tune, DividesExpertsWhereThatIsFaster) {
  Settings settings = model();
  settings.model = {.family = "llama", .layers = 2, .hidden = 64, .heads = 1, .vocab = 257, .seq = 32};
  settings.model.experts = 64;
  const Layout best = tune(settings, cluster_of("1GiB"), 4, {.keep = 1}).fastest();
  EXPECT_GT(best.settings.mesh.ep, 1);
  Settings whole = best.settings;
  whole.mesh.ep = 1;
  EXPECT_GT(simulate(make_plan(whole, 4), cluster_of("1GiB"), {}).iteration_s, best.simulation.iteration_s);
}

// Where the network is slow, state is sharded within nodes, if there is memory for it and no size is given.
TEST(Tune, ShardsWithinNodesWhereThatIsFaster) {
  Settings settings = model();
  settings.model.layers = settings.model.heads = 1;  // dp is all that can be cut
  const Layout best = tune(settings, cluster_of("1GiB"), 8, {.keep = 3}).fastest();
  EXPECT_EQ(best.settings.optim.shard_group, 4);
  Settings whole = best.settings;
  whole.optim.shard_group = 0;
  EXPECT_GT(simulate(make_plan(whole, 8), cluster_of("1GiB"), {}).iteration_s, best.simulation.iteration_s);
  settings.optim.zero = 0;
  for (const Layout& layout : tune(settings, cluster_of("1GiB"), 8, {}).best)
    EXPECT_EQ(layout.settings.optim.shard_group, 0);
}

// Where parameters leave too little room, they are sharded if that is faster than to compute activations twice.
TEST(Tune, ShardsParametersWhereThatIsFaster) {
  Settings settings = model();
  settings.model.layers = 16;
  settings.model.hidden = 256, settings.model.seq = 512;
  settings.model.heads = 1;
  settings.train.dtype = "fp32";
  settings.overlap.dp_message = 1;
  EXPECT_EQ(tune(settings, cluster_of("1GiB"), 4, {.keep = 1}).fastest().settings.optim.zero, 1);
  const cost::Cluster cluster = cluster_of("170MiB");
  const Layout best = tune(settings, cluster, 4, {.keep = 1}).fastest();
  EXPECT_EQ(best.settings.optim.zero, 3);
  EXPECT_EQ(best.settings.train.recompute, "selective");
  Settings whole = best.settings;
  whole.optim.zero = 1;
  EXPECT_GT(rank_memory(make_plan(whole, 4), {}).total_bytes, cluster.device.memory_bytes);
}

// The head of a large vocabulary is as much work as layers are.
TEST(Tune, TakesLayersFromTheEndsWhereThatIsFaster) {
  Settings settings = model();
  settings.model.layers = 12;
  settings.model.hidden = 256, settings.model.seq = 512;
  settings.model.vocab = 16384;
  settings.model.heads = 1;
  settings.train.global_batch = 32;
  const cost::Cluster cluster = cluster_of("1GiB");
  bool seen = false;
  for (const Layout& layout : tune(settings, cluster, 4, {.keep = 100}).best) {
    const mesh::MeshConfig& mesh = layout.settings.mesh;
    if (mesh.pp != 4 || mesh.chunks != 1) continue;
    seen = true;
    EXPECT_TRUE(mesh.last_layers == 1 || mesh.last_layers == 2);
    Settings equal = layout.settings;
    equal.mesh.first_layers = equal.mesh.last_layers = 0;
    EXPECT_LT(layout.simulation.iteration_s, simulate(make_plan(equal, 4), cluster, {}).iteration_s);
  }
  EXPECT_TRUE(seen);
}

// Where attention has to be split over tp, whole experts on its ranks are fewer and larger GEMMs.
TEST(Tune, FoldsExpertsOverTpWhereThatIsFaster) {
  Settings settings = model();
  settings.model = {.family = "llama", .layers = 2, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32};
  settings.model.experts = 64;
  settings.train.global_batch = 1;  // over dp there is nothing to share out
  const Layout best = tune(settings, cluster_of("1GiB"), 4, {.keep = 1}).fastest();
  ASSERT_GT(best.settings.mesh.tp, 1);
  EXPECT_TRUE(best.settings.mesh.folds_tp());
  Settings cut = best.settings;
  cut.mesh.ep = 1, cut.mesh.expert_tp = 0;
  EXPECT_GT(simulate(make_plan(cut, 4), cluster_of("1GiB"), {}).iteration_s, best.simulation.iteration_s);
}

TEST(Tune, NamesTheDeviceOfTheCluster) {
  cost::Cluster cluster = cluster_of("1GiB");
  Settings settings = model();
  settings.train.dtype = "bf16";
  EXPECT_EQ(for_devices_of(cluster, settings).run.device, "cpu") << "no data sheet knows a " << cluster.device.name;
  cluster.device.name = "H100-SXM5-80GB";
  EXPECT_EQ(for_devices_of(cluster, settings).run.device, "cuda");
  settings.train.dtype = "fp32";
  EXPECT_EQ(for_devices_of(cluster, settings).run.device, "cpu") << "attention on a GPU is in bf16";
}

TEST(Tune, KeepsWithinMemory) {
  const std::int64_t whole = rank_memory(make_plan(model(), 4), {}).total_bytes;
  const cost::Cluster cluster = cluster_of(std::to_string(whole * 2 / 3) + "B");
  const Tuning tuning = tune(model(), cluster, 4, {});
  EXPECT_GT(tuning.too_large + tuning.best.size(), 0U);
  for (const Layout& layout : tuning.best) {
    EXPECT_LE(layout.memory_bytes, whole * 2 / 3);
    EXPECT_EQ(layout.settings.mesh.dp * layout.settings.mesh.pp * layout.settings.mesh.tp, 4);
  }
  EXPECT_FALSE(tuning.given.has_value());  // it does not fit
}

TEST(Tune, WhereNothingFitsItSaysWhatTheSmallestNeeds) {
  try {
    tune(model(), cluster_of("1KiB"), 4, {});
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "tune.none");
    EXPECT_THAT(error.what(), HasSubstr("no layout over 4 ranks fits a D with 1.0 KiB: the smallest needs"));
  }
}

TEST(Tune, SaysWhyTheOthersAreSlower) {
  Layout best, other;
  best.settings = other.settings = model();
  best.simulation.iteration_s = 10;
  other.simulation.iteration_s = 12;
  const auto why = [&] { return why_slower(other, best); };
  other.simulation.parts.bubble_s = 2;
  other.settings.mesh = {.dp = 1, .pp = 8};
  EXPECT_EQ(why(), "20.0 % slower; its bubble is longer: 16 microbatches through pp 8 x 1 chunks (1f1b)");
  other.simulation.parts.compute_s = 3;
  other.settings.train.recompute = "full";
  EXPECT_EQ(why(), "20.0 % slower; it computes longer: recompute = full");
  best.settings.train.recompute = "full";
  other.settings.train.recompute = "none";
  other.settings.mesh.tp = 2;
  EXPECT_EQ(why(), "20.0 % slower; it computes longer: smaller GEMMs of tp 2") << "less recomputation costs no time";
  other.simulation.parts.tp_s = 4;
  other.settings.mesh.tp = 4;
  EXPECT_EQ(why(), "20.0 % slower; compute waits longer for collectives of tp 4, which are not overlapped");
  other.simulation.iteration_s = 10;
  EXPECT_EQ(why(), "as fast");
}

TEST(Tune, ItsWinnerLoadsAsAConfiguration) {
  const Tuning tuning = tune(model(), cluster_of("1GiB"), 2, {.keep = 1});
  const Settings& winner = tuning.best.front().settings;
  const Settings loaded = load_text(to_toml(winner), "winner", {"data.train=x"}).settings;
  EXPECT_EQ(loaded.mesh.pp, winner.mesh.pp);
  EXPECT_EQ(loaded.mesh.chunks, winner.mesh.chunks);
  EXPECT_EQ(loaded.overlap.tp, winner.overlap.tp);
  EXPECT_EQ(loaded.train.recompute, winner.train.recompute);
}

}  // namespace
}  // namespace ms::train
