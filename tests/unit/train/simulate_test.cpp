// Simulated steps against closed formulas, against the plan, and against each other.
#include "train/simulate/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "sched/registry.h"
#include "train/engine/rank_tensors.h"
#include "train/simulate/memory.h"
#include "train/simulate/sim_issuer.h"

namespace ms::train {
namespace {

using ::testing::HasSubstr;

// Links that take no time to speak of, devices that all do the same.
cost::Cluster free_cluster() {
  return cost::load_cluster_text(
      "[device]\nname = 'D'\ncapacity = '1GiB'\ntflops = 100\nmemory_rate = 1000\n"
      "[node]\nranks = 4\nrate = 1e6\n[network]\nrate = 1e6\n",
      "cluster", {});
}

Settings settings_of(std::int64_t dp, std::int64_t pp, std::int64_t tp, std::int64_t chunks,
                     std::int64_t microbatches) {
  Settings settings;
  settings.model = {.layers = 16, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32, .tied_embeddings = true};
  settings.mesh = {.dp = dp, .pp = pp, .tp = tp, .chunks = chunks};
  settings.train.global_batch = microbatches * dp;
  settings.train.microbatch = 1;
  return settings;
}
Plan plan_of(const Settings& settings) { return make_plan(settings, static_cast<int>(settings.mesh.ranks())); }

// Only attention takes time, so that every stage takes the same: `forward` a layer, and `backward`.
std::function<double(const tensor::OpCost&)> layers_alone(const Settings& settings, double forward, double backward) {
  const auto& model = settings.model;
  const double pairs =
      static_cast<double>(cost::causal_pairs(model.seq, model.window) * model.heads / settings.mesh.tp);
  const double forward_flops = 4 * pairs * static_cast<double>(model.head_dim());
  return [=](const tensor::OpCost& op) {
    if (op.op_class != tensor::OpClass::attention) return 0.0;
    return op.flops > 1.5 * forward_flops ? backward : forward;
  };
}

struct Pipeline {
  int pp, chunks, microbatches;
};
void PrintTo(const Pipeline& p, std::ostream* out) {
  *out << "pp " << p.pp << " chunks " << p.chunks << " m " << p.microbatches;
}
class Formulas : public ::testing::TestWithParam<Pipeline> {};

// The published formula, whatever else the engine issues, and whether transfers travel under compute or not.
TEST_P(Formulas, FreeMessagesGiveThePipelinesMakespan) {
  const auto& [pp, chunks, microbatches] = GetParam();
  for (const bool overlap : {true, false}) {
    Settings settings = settings_of(2, pp, 2, chunks, microbatches);
    settings.overlap = {.tp = overlap, .pp = overlap, .dp = overlap};
    const Plan plan = plan_of(settings);
    SimulateOptions options;
    options.seconds = layers_alone(settings, 1, 2);
    const Simulation simulation = simulate(plan, free_cluster(), options);
    const double layers = 16.0 / pp;
    const sched::Times times{.forward = layers, .backward = 2 * layers};
    const double busy = microbatches * (times.forward + times.backward);
    const double bubble = sched::find_kind(settings.mesh.schedule, chunks)->bubble(plan.training.shape, times);
    EXPECT_NEAR(simulation.iteration_s, busy + bubble, 1e-6) << "overlap " << overlap;
    EXPECT_NEAR(simulation.parts.bubble_s / simulation.parts.compute_s, bubble / busy, 1e-9);
    EXPECT_NEAR(simulation.parts.dp_s + simulation.parts.tp_s + simulation.parts.pp_s, 0, 1e-6);
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, Formulas,
                         ::testing::Values(Pipeline{1, 1, 4}, Pipeline{2, 1, 4}, Pipeline{4, 1, 8}, Pipeline{8, 1, 8},
                                           Pipeline{2, 2, 4}, Pipeline{4, 2, 8}, Pipeline{4, 4, 8},
                                           Pipeline{2, 4, 16}));

TEST(Simulate, SplitBackwardHasTheBubbleOfZeroBubbleH1) {
  Settings settings = settings_of(1, 4, 1, 1, 8);
  settings.mesh.schedule = "zb-h1";
  const Plan plan = plan_of(settings);
  SimulateOptions options;
  // Gradients of weights are products alone; attention's backward belongs to the input's half.
  const auto attention = layers_alone(settings, 1, 1);
  options.seconds = [&](const tensor::OpCost& op) { return attention(op); };
  const Simulation simulation = simulate(plan, free_cluster(), options);
  EXPECT_NEAR(
      simulation.parts.bubble_s,
      sched::find_kind("zb-h1", 1)->bubble(plan.training.shape, {.forward = 4, .backward = 4, .weight_share = 0}),
      1e-6);
}

TEST(Simulate, MemoryIsThePlans) {
  const Plan plan = plan_of(settings_of(2, 4, 2, 2, 8));
  const Simulation simulation = simulate(plan, free_cluster(), {});
  ASSERT_EQ(simulation.stages.size(), 4U);
  for (int p = 0; p < 4; ++p) {
    EXPECT_EQ(simulation.stages[static_cast<std::size_t>(p)].memory_bytes,
              rank_memory(plan, {.dp = 0, .pp = p, .tp = 0}).total_bytes);
  }
}

// Rows that are exchanged take time over slow links; overlap hides some of it, and every rank is like those of stage 0.
TEST(Simulate, ExchangesOfExpertsAreTheirPart) {
  cost::Cluster cluster = free_cluster();
  cluster.network.gb_s = 5;
  Settings settings = settings_of(8, 1, 1, 1, 2);
  settings.model = {.family = "llama", .layers = 4, .hidden = 256, .heads = 4, .vocab = 257, .seq = 512};
  settings.model.experts = 32, settings.model.experts_per_token = 2;
  settings.mesh.ep = 8;
  std::vector<double> exposed_s;
  for (const bool overlap : {false, true}) {
    settings.overlap.ep = overlap;
    const Plan plan = plan_of(settings);
    const Simulation some = simulate(plan, cluster, {});
    exposed_s.push_back(some.parts.ep_s);
    EXPECT_NEAR(simulate(plan, cluster, {.every_rank = true}).iteration_s, some.iteration_s, 1e-9 * some.iteration_s);
  }
  EXPECT_GT(exposed_s[0], 0);
  EXPECT_LT(exposed_s[1], 0.8 * exposed_s[0]);
}

// What one rank sends in all-to-alls of a step, by the kind of their group: bytes that all members have.
std::map<std::string, std::int64_t> exchanged_bytes(const Settings& settings) {
  const Plan plan = plan_of(settings);
  SimIssuer issuer(plan, 8, 0, nullptr, 1);
  const comm::SimRecording recording = issuer.step(0);
  std::map<std::string, std::int64_t> bytes;
  for (const tensor::SimProgram::Stream& stream : recording.program.streams) {
    for (const tensor::SimItem& item : stream.items) {
      if (item.kind != tensor::SimItem::Kind::comm_op) continue;
      const comm::SimCommOp& op = recording.comm_ops[item.index];
      const std::string& group = recording.groups[op.group].name;
      if (op.kind == comm::OpKind::all_to_all) bytes[group.substr(0, group.find('['))] += op.size_bytes;
    }
  }
  return bytes;
}

// A row goes to its expert and back, and so does its gradient; the backward needs the input once more, and the factor
// and its gradient go along. Over ep a rank sends those of its share of the tokens, and over tp ranks gather all.
TEST(Simulate, ARowOfAnExpertGoesOverEpOnce) {
  for (const bool sequence_parallel : {true, false}) {
    for (const std::int64_t tp : {1, 2, 4}) {
      for (const double capacity : {0.0, 1.25}) {
        Settings settings = settings_of(4, 1, tp, 1, 2);
        settings.model = {.family = "llama", .layers = 2, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32};
        settings.model.experts = 8, settings.model.experts_per_token = 3;
        settings.mesh.ep = 4, settings.mesh.sequence_parallel = sequence_parallel;
        settings.train.dtype = "bf16", settings.train.moe_dispatch = "all_to_all";
        settings.train.moe_capacity = capacity;
        settings.metrics.expert_load_every = 0;  // counting what is dropped takes an exchange of its own
        const std::int64_t microbatches = 2, slots = microbatches * 2 * 32 * 3, row = 5 * 64 * 2 + 2 * 4;
        std::map<std::string, std::int64_t> expected{{"ep", slots * row / tp}};
        if (tp > 1) expected["tp"] = slots * row;
        EXPECT_EQ(exchanged_bytes(settings), expected) << tp << " " << sequence_parallel << " " << capacity;
      }
    }
  }
}

// Of whole experts rows move over ep alone, each for a share of the tokens; without ep they stay.
TEST(Simulate, ARowOfAWholeExpertStaysOffTp) {
  for (const bool sequence_parallel : {true, false}) {
    for (const std::int64_t ep : {1, 2, 8}) {
      Settings settings = settings_of(4, 1, 2, 1, 2);
      settings.model = {.family = "llama", .layers = 2, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32};
      settings.model.experts = 8, settings.model.experts_per_token = 3;
      settings.mesh.ep = ep, settings.mesh.expert_tp = 1, settings.mesh.sequence_parallel = sequence_parallel;
      settings.train.dtype = "bf16", settings.train.moe_dispatch = "all_to_all";
      const std::int64_t microbatches = 2, slots = microbatches * 2 * 32 * 3, row = 5 * 64 * 2 + 2 * 4;
      std::map<std::string, std::int64_t> expected;
      if (ep > 1) expected["ep"] = slots * row / 2;
      EXPECT_EQ(exchanged_bytes(settings), expected) << ep << " " << sequence_parallel;
    }
  }
}

// One rank of a stage stands for all, also where ranks of tp hold different experts.
TEST(Simulate, RanksOfFoldedExpertsAreAlike) {
  for (const std::int64_t ep : {2, 4, 8}) {
    Settings settings = settings_of(2, 2, 4, 1, 2);
    settings.model = {.family = "llama", .layers = 4, .hidden = 256, .heads = 4, .vocab = 257, .seq = 64};
    settings.model.tied_embeddings = false, settings.model.experts = 16, settings.model.experts_per_token = 2;
    settings.mesh.ep = ep, settings.mesh.expert_tp = 1;
    const Plan plan = plan_of(settings);
    const double some_s = simulate(plan, free_cluster(), {}).iteration_s;
    EXPECT_NEAR(simulate(plan, free_cluster(), {.every_rank = true}).iteration_s, some_s, 1e-9 * some_s) << ep;
  }
}

// A share of the routing needs as many tokens for each rank of tp; else every one routes all of them.
TEST(Simulate, TokensThatDoNotDivideOverTpAreRoutedByAllRanks) {
  Settings settings = settings_of(2, 1, 4, 1, 1);
  settings.model = {.family = "llama", .layers = 1, .hidden = 64, .heads = 4, .vocab = 257, .seq = 30};
  settings.model.experts = 4, settings.model.experts_per_token = 2;
  settings.mesh.ep = 2, settings.mesh.sequence_parallel = false;
  settings.train.dtype = "f32", settings.train.moe_dispatch = "all_to_all";
  EXPECT_EQ(exchanged_bytes(settings), (std::map<std::string, std::int64_t>{{"ep", 30 * 2 * (5 * 64 * 4 + 2 * 4)}}));
}

// Only grouped matmuls take time, or only all-to-alls: both are as much longer as the busiest rank has more rows.
TEST(Simulate, TheBusiestExpertsDelayAStep) {
  Settings settings = settings_of(4, 2, 1, 1, 4);
  settings.model = {.family = "llama", .layers = 4, .hidden = 64, .heads = 4, .vocab = 257, .seq = 32};
  settings.model.experts = 8, settings.model.experts_per_token = 2;
  settings.mesh.ep = 4;
  settings.overlap.ep = false;
  const Plan plan = plan_of(settings);
  cost::Cluster cluster = free_cluster();
  SimulateOptions options;
  const auto experts_s = [&](double first_stage, double second_stage) {
    options.busiest_ranks = {first_stage, first_stage, second_stage, second_stage};
    options.seconds = [](const tensor::OpCost& op) { return op.gemms > 1 ? 1e-9 * op.flops : 0; };
    return simulate(plan, cluster, options);
  };
  const double even_s = experts_s(1, 1).stages[1].busy_s;
  const Simulation uneven = experts_s(1, 1.75);
  EXPECT_NEAR(uneven.stages[0].busy_s, even_s, 1e-9 * even_s);
  EXPECT_NEAR(uneven.stages[1].busy_s, 1.75 * even_s, 1e-9 * even_s);
  EXPECT_EQ(uneven.stages[0].expert_load, 1);
  EXPECT_EQ(uneven.stages[1].expert_load, 1.75);

  cluster.node.gb_s = 1e-3;
  options.seconds = [](const tensor::OpCost&) { return 0.0; };
  const auto exposed_s = [&](double busiest) {
    options.busiest_ranks.assign(4, busiest);
    return simulate(plan, cluster, options).parts.ep_s;
  };
  const double of_offsets = 2 * exposed_s(1) - exposed_s(2);  // gathers of them, which depend on no load
  EXPECT_NEAR(exposed_s(4) - of_offsets, 4 * (exposed_s(1) - of_offsets), 1e-3 * exposed_s(4));
}

TEST(Simulate, PartsAddUpAndMfuFollowsFromTheRate) {
  cost::Cluster cluster = free_cluster();
  cluster.node.gb_s = 50;
  cluster.network.gb_s = 5;
  cluster.network.latency_s = 5e-6;
  Settings settings = settings_of(2, 2, 2, 2, 8);
  settings.overlap = {.tp = false, .pp = false, .dp = false};
  const Plan plan = plan_of(settings);
  const Simulation simulation = simulate(plan, cluster, {});
  const StepParts& parts = simulation.parts;
  EXPECT_NEAR(parts.compute_s + parts.bubble_s + parts.tp_s + parts.pp_s + parts.dp_s + parts.world_s,
              simulation.iteration_s, 1e-9);
  for (const double part : {parts.tp_s, parts.pp_s, parts.dp_s}) EXPECT_GT(part, 0);
  const double flops_per_s = simulation.tokens_per_s * cost::flops_per_token(plan.model_shape()).causal;
  EXPECT_NEAR(simulation.mfu.causal, flops_per_s / (8 * 100e12), 1e-12);
  EXPECT_DOUBLE_EQ(simulation.tokens_per_s, static_cast<double>(plan.tokens_per_step()) / simulation.iteration_s);
}

// The network carries shards of gradients only, and no parameters.
TEST(Simulate, ShardGroupsWithinNodesSpareTheNetwork) {
  cost::Cluster cluster = free_cluster();
  cluster.network.gb_s = 5;
  Settings settings = settings_of(8, 1, 1, 1, 1);
  settings.overlap.dp = false;
  std::vector<double> exposed_s;
  for (const std::int64_t shard_group : {0, 4}) {
    settings.optim.shard_group = shard_group;
    exposed_s.push_back(simulate(plan_of(settings), cluster, {}).parts.dp_s);
  }
  EXPECT_GT(exposed_s[1], 0);
  EXPECT_LT(exposed_s[1], exposed_s[0]);
}

// The same messages, the same waits, only more ranks.
TEST(Simulate, OneRankAStageStandsForAllWhereAllAreAlike) {
  for (const bool overlap : {true, false}) {
    for (const auto& [dp, pp, tp] : {std::array{4, 2, 2}, {2, 2, 4}, {3, 1, 2}, {1, 4, 2}, {4, 2, 1}}) {
      cost::Cluster cluster = free_cluster();
      cluster.node.gb_s = 50;
      cluster.network.gb_s = 5;
      cluster.network.latency_s = 5e-6;
      Settings settings = settings_of(dp, pp, tp, pp > 1 ? 2 : 1, 8);
      settings.overlap = {.tp = overlap, .pp = overlap, .dp = overlap};
      if (dp == 4 && tp == 2) settings.optim.shard_group = 2;
      const Plan plan = plan_of(settings);
      const Simulation some = simulate(plan, cluster, {}), all = simulate(plan, cluster, {.every_rank = true});
      EXPECT_EQ(some.ranks, static_cast<std::size_t>(pp));
      EXPECT_EQ(all.ranks, static_cast<std::size_t>(dp * pp * tp));
      EXPECT_NEAR(all.iteration_s, some.iteration_s, 1e-3 * some.iteration_s)
          << "dp " << dp << " pp " << pp << " tp " << tp << " overlap " << overlap;
    }
  }
}

// Who stands for many nodes is as slow as their slowest is expected to be.
TEST(Simulate, ChanceMakesManyAsSlowAsTheSlowest) {
  cost::Cluster cluster = free_cluster();
  cluster.noise.spread = 0.05;
  Settings settings = settings_of(64, 1, 4, 1, 1);
  SimulateOptions options{.parts = false};
  options.seconds = layers_alone(settings, 1, 2);
  const double some = simulate(plan_of(settings), cluster, options).iteration_s;
  double sum = 0;
  constexpr int kRuns = 12;
  options.every_rank = true;
  for (int run = 0; run < kRuns; ++run) {
    settings.train.seed = run;
    sum += simulate(plan_of(settings), cluster, options).iteration_s;
  }
  EXPECT_NEAR(sum / kRuns, some, 0.01 * some);
  EXPECT_NEAR(some, 3 * 16 * cost::slowest_of(cluster.noise, 64), 1e-6);
}

TEST(Simulate, ASlowRankHoldsUpThoseThatMeetIt) {
  const Settings settings = settings_of(4, 2, 2, 1, 8);
  const Plan plan = plan_of(settings);
  SimulateOptions options;
  options.seconds = layers_alone(settings, 1, 2);
  const double before = simulate(plan, free_cluster(), options).iteration_s;
  options.slow = parse_slow({"rank=5:1.5"}, plan.mesh, free_cluster());
  const Simulation slow = simulate(plan, free_cluster(), options);
  EXPECT_EQ(slow.ranks, 16U);
  EXPECT_GT(slow.iteration_s, 1.35 * before);
  EXPECT_LT(slow.iteration_s, 1.5 * before + 1e-6);
  EXPECT_NEAR(slow.stages[0].busy_s, 1.5 * 8 * 3 * 8, 1e-9);  // its stage's longest
  EXPECT_NEAR(slow.stages[1].busy_s, 8 * 3 * 8, 1e-9);
}

TEST(Simulate, ASlowLinkCostsOnlyMessages) {
  cost::Cluster cluster = free_cluster();
  cluster.network.gb_s = 1e-3;
  Settings settings = settings_of(4, 2, 2, 1, 8);
  settings.overlap.dp = false;
  const Plan plan = plan_of(settings);
  SimulateOptions options{.every_rank = true};
  const Simulation before = simulate(plan, cluster, options);
  options.slow = parse_slow({"link=5:4"}, plan.mesh, cluster);
  const Simulation slow = simulate(plan, cluster, options);
  EXPECT_GT(slow.iteration_s, 1.5 * before.iteration_s);
  EXPECT_DOUBLE_EQ(slow.parts.compute_s, before.parts.compute_s);
}

TEST(Simulate, WhatDoesNotFitSaysWhichStageAndWhatWould) {
  cost::Cluster cluster = free_cluster();
  Settings settings = settings_of(1, 2, 1, 1, 8);
  const Plan plan = plan_of(settings);
  const std::int64_t needs = rank_memory(plan, {.dp = 0, .pp = 0, .tp = 0}).total_bytes;
  cluster.device.memory_bytes = needs;
  EXPECT_NO_THROW(require_memory(plan, cluster));
  cluster.device.memory_bytes = needs * 9 / 10;
  try {
    require_memory(plan, cluster);
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "simulate.memory");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.what(), HasSubstr("stage 0 of 2 needs"));
    EXPECT_THAT(std::string(error.what()), HasSubstr("a D has"));
    EXPECT_THAT(std::string(error.hint()), HasSubstr("--set train.recompute=full would need"));
  }
  cluster.device.memory_bytes = 1000;
  try {
    require_memory(plan, cluster);
    FAIL() << "nothing was refused";
  } catch (const Error& error) { EXPECT_THAT(std::string(error.hint()), HasSubstr("nothing that was tried fits")); }
}

TEST(Simulate, AMissingLinkIsNamed) {
  cost::Cluster cluster = free_cluster();
  cluster.network.gb_s = 0;
  EXPECT_NO_THROW(simulate(plan_of(settings_of(1, 2, 2, 1, 4)), cluster, {}));
  try {
    simulate(plan_of(settings_of(1, 4, 2, 1, 4)), cluster, {});
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "cluster.link");
    EXPECT_THAT(error.what(), HasSubstr("no link between nodes"));
  }
}

TEST(Simulate, SlowIsReadStrictly) {
  const mesh::Mesh mesh{.dp = 2, .pp = 2, .tp = 2};
  const cost::Cluster cluster = free_cluster();
  const auto slow = parse_slow({"rank=7:1.5", "node=1:2", "link=0:3"}, mesh, cluster);
  ASSERT_EQ(slow.size(), 3U);
  EXPECT_EQ(slow[1].first, 4);
  EXPECT_EQ(slow[1].last, 7);
  EXPECT_EQ(slow[2].target, Slow::Target::link);
  for (const char* text : {"", "rank", "rank=1", "rank=:2", "rank=8:2", "rank=-1:2", "node=2:2", "rank=1:0", "rank=1:x",
                           "rank=1:2x", "host=1:2", "rank:1=2", "rank=1:nan"}) {
    EXPECT_THROW(parse_slow({text}, mesh, cluster), Error) << text;
  }
}

}  // namespace
}  // namespace ms::train
