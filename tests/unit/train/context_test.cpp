// Context parallelism in the plan and in simulations: which way is chosen, what is said of it, what it costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "train/commands/show_plan.h"
#include "train/simulate/simulate.h"

namespace ms::train {
namespace {

using ::testing::HasSubstr;

Settings shared_settings(std::int64_t cp, const std::string& type) {
  Settings settings;
  settings.model = {.layers = 4, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32, .tied_embeddings = true};
  settings.mesh = {.dp = 2, .pp = 2, .cp = cp, .cp_type = type};
  settings.train.global_batch = 8;
  settings.train.microbatch = 1;
  return settings;
}
Plan shared_plan(const Settings& settings) { return make_plan(settings, static_cast<int>(settings.mesh.ranks())); }

// With as many key-value heads as heads, exchanging is less from two ranks on; with fewer, from more ranks on.
TEST(Context, ChoosesWhatMovesFewerBytes) {
  struct Case {
    std::int64_t cp, tp, heads, kv_heads;
    const char* type;
    const char* device;
    nn::CpType chosen;
  };
  using enum nn::CpType;
  const Case cases[] = {{1, 1, 4, 0, "auto", "cpu", all_gather},       {1, 1, 4, 0, "all-to-all", "cpu", all_to_all},
                        {2, 1, 4, 0, "auto", "cpu", all_to_all},       {4, 1, 4, 0, "auto", "cpu", all_to_all},
                        {4, 2, 4, 0, "auto", "cpu", all_gather},       {2, 1, 4, 2, "auto", "cpu", all_gather},
                        {2, 1, 4, 2, "all-to-all", "cpu", all_to_all}, {2, 1, 4, 2, "auto", "cuda", all_to_all},
                        {2, 1, 4, 0, "all-gather", "cpu", all_gather}, {4, 1, 8, 4, "auto", "cpu", all_to_all},
                        {4, 1, 8, 2, "auto", "cuda", all_gather},      {4, 1, 8, 2, "ring", "cpu", ring}};
  for (const Case& c : cases) {
    Settings settings = shared_settings(c.cp, c.type);
    settings.mesh.tp = c.tp;
    settings.model.heads = c.heads, settings.model.kv_heads = c.kv_heads;
    settings.run.device = c.device;
    EXPECT_EQ(cp_type_of(settings), c.chosen) << c.cp << " " << c.heads << "/" << c.kv_heads << " " << c.type;
  }
}

TEST(Context, IsSaidInThePlan) {
  for (const char* type : {"all-gather", "all-to-all", "ring"}) {
    const Plan plan = shared_plan(shared_settings(2, type));
    const nlohmann::json mesh = nlohmann::json::parse(plan_json(plan)).at("mesh");
    EXPECT_EQ(mesh.at("world"), 8);
    EXPECT_EQ(mesh.at("dp"), 2);
    EXPECT_EQ(mesh.at("cp"), 2);
    EXPECT_EQ(mesh.at("cp_type"), type);
    EXPECT_THAT(plan_text(plan), HasSubstr("tp 1 (fastest) x cp 2 x dp 2 x pp 2"));
    EXPECT_THAT(plan_text(plan), HasSubstr(std::string("cp by ") + type));
  }
}

// Keys or heads that are exchanged take time, and every rank of cp computes as much as the first one.
TEST(Context, ExchangesAreAPartOfTheStep) {
  const cost::Cluster cluster = cost::load_cluster_text(
      "[device]\nname = 'D'\ncapacity = '1GiB'\ntflops = 100\nmemory_rate = 1000\n"
      "[node]\nranks = 4\nrate = 50\n[network]\nrate = 5\n",
      "cluster", {});
  const Simulation alone = simulate(shared_plan(shared_settings(1, "auto")), cluster, {});
  EXPECT_EQ(alone.parts.cp_s, 0);
  for (const char* type : {"all-gather", "all-to-all", "ring"}) {
    SCOPED_TRACE(type);
    const Plan plan = shared_plan(shared_settings(4, type));
    const Simulation some = simulate(plan, cluster, {}), all = simulate(plan, cluster, {.every_rank = true});
    EXPECT_GT(some.parts.cp_s, 0);
    EXPECT_EQ(some.parts.ep_s, 0);
    EXPECT_NEAR(all.iteration_s, some.iteration_s, 1e-9 * some.iteration_s);
  }
}

}  // namespace
}  // namespace ms::train
