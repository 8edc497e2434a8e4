// Overlap and split backwards change only the timing, not the results: every combination of the switches against all of
// them off, bit by bit. The techniques that do change the results, and all of them together, against one rank with the
// same model and optimizer. Also checks that with overlap computation does not wait.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "comm/thread_world.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.norms, b.norms) << what;
  EXPECT_EQ(a.valid_loss, b.valid_loss) << what;
  EXPECT_TRUE(same_bits(a.gradients, b.gradients)) << what;
  EXPECT_TRUE(same_bits(a.parameters, b.parameters)) << what;
}

// Every ZeRO stage, one rank of pp and many, chunks, both forms of tp; f32 and bf16, tied and untied.
struct Case {
  Layout layout;
  const char* dtype;
  bool tied;
  std::int64_t dp_message;  // bytes; 1: a collective for each layer, the embedding and the head
};
constexpr std::int64_t kLong = 1 << 30;
const Case kCases[] = {{{4, 1, 1, 1, true, 1}, "bf16", false, 1},     {{2, 1, 2, 1, true, 0}, "fp32", true, 1},
                       {{2, 1, 2, 2, true, 1}, "bf16", true, kLong},  {{2, 1, 2, 4, true, 2}, "fp32", false, kLong},
                       {{1, 2, 4, 1, false, 1}, "bf16", true, kLong}, {{2, 2, 2, 1, true, 2}, "fp32", false, 1},
                       {{2, 1, 4, 1, true, 2}, "bf16", false, 1},     {{1, 1, 8, 1, true, 1}, "fp32", true, kLong},
                       {{4, 1, 1, 1, true, 2}, "fp32", true, 1},      {{2, 2, 1, 1, true, 1}, "bf16", false, 1}};

class Switches : public testing::TestWithParam<std::tuple<std::string, Case>> {};

TEST_P(Switches, ChangeNoBit) {
  constexpr int kSteps = 3;
  const auto& [family, run] = GetParam();
  train::Settings settings = with(tiny_settings(family), run.layout);
  settings.train.dtype = run.dtype;
  settings.model.tied_embeddings = run.tied;
  settings.overlap = {.tp = false, .pp = false, .dp = false, .ep = false, .dp_message = run.dp_message};
  const Outcome without = run_threads(settings, kSteps);
  ASSERT_EQ(without.losses.size(), std::size_t{kSteps});
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    if (schedule == "zb-h1" && (run.layout.chunks > 1 || run.layout.pp == 1)) continue;
    settings.mesh.schedule = schedule;
    for (const auto& [pp, dp] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
      if (schedule == "1f1b" && !pp && !dp) continue;  // the reference
      if (run.layout.pp == 1 && pp != dp) continue;
      if (run.layout.dp == 1 && dp != pp) continue;
      settings.overlap.pp = pp;
      settings.overlap.dp = dp;
      settings.overlap.ep = pp || dp;
      expect_same(without, run_threads(settings, kSteps), fmt::format("{}, pp {}, dp {}", schedule, pp, dp));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Overlap, Switches,
                         testing::Combine(testing::Values("gpt", "llama", "moe"), testing::ValuesIn(kCases)),
                         [](const testing::TestParamInfo<Switches::ParamType>& run) {
                           return std::get<0>(run.param) + "_" + std::get<1>(run.param).layout.name();
                         });

const Case kExpertCases[] = {{{4, 1, 1, 1, true, 1, 2}, "bf16", false, 1},
                             {{4, 1, 2, 1, true, 2, 4}, "fp32", false, kLong},
                             {{2, 2, 2, 2, false, 1, 2}, "fp32", true, 1},
                             {{2, 4, 1, 1, true, 1, 2}, "bf16", false, 1},
                             {folded({2, 2, 2, 1, true, 2, 4}), "fp32", false, kLong},
                             {folded({2, 2, 1, 1, false, 1, 2, true}), "bf16", false, 1}};
INSTANTIATE_TEST_SUITE_P(Experts, Switches, testing::Combine(testing::Values("moe"), testing::ValuesIn(kExpertCases)),
                         [](const testing::TestParamInfo<Switches::ParamType>& run) {
                           return std::get<1>(run.param).layout.name();
                         });

// Rows of experts go over ep and over tp on a stream each, in parts, and are summed between: the race check sees it.
TEST(ExpertRows, AreNeverUsedBeforeTheyArrive) {
  for (const std::string family : {"moe", "mixtral"}) {
    for (const Layout& layout : {Layout{2, 2, 2, 1, true, 1, 2}, Layout{2, 2, 2, 1, false, 1, 2},
                                 folded({2, 2, 2, 1, true, 1, 4}), folded({1, 2, 2, 1, false, 1, 2})}) {
      for (const std::string schedule : {"1f1b", "zb-h1"}) {
        train::Settings settings = with(tiny_settings(family), layout);
        settings.mesh.schedule = schedule;
        settings.train.moe_capacity = 1.25, settings.metrics.expert_load_every = 1;
        on_threads(settings, [](const train::Plan& plan, comm::World& world, tensor::Device& device) {
          device.races().enable(true);
          Outcome outcome;
          run_rank(plan, world, device, 2, outcome);
        });
      }
    }
  }
}

TEST(SplitBackward, RecomputesToTheSameBits) {
  train::Settings settings = with(tiny_settings("llama"), {1, 2, 2, 1, true, 1});
  const Outcome whole = run_threads(settings, 3);
  settings.mesh.schedule = "zb-h1";
  for (const char* recompute : {"selective", "full"}) {
    settings.train.recompute = recompute;
    expect_same(whole, run_threads(settings, 3), recompute);
  }
}

// The settings of each technique. Those of the model or the optimizer are also set for the one rank.
struct Technique {
  const char* name;
  bool tp, parallel_block, window, zero_bubble, lamb;
};
constexpr Technique kTechniques[] = {
    {"tp", true, false, false, false, false},     {"ptb", false, true, false, false, false},
    {"window", false, false, true, false, false}, {"zb", false, false, false, true, false},
    {"lamb", false, false, false, false, true},   {"all", true, true, true, true, true}};
const Layout kTechniqueLayouts[] = {{2, 2, 2, 1, true, 1}, {1, 4, 2, 1, false, 1}, {2, 2, 2, 1, true, 2}};

class Techniques : public testing::TestWithParam<std::tuple<std::string, Technique, Layout>> {};

TEST_P(Techniques, ComputeWhatOneRankComputes) {
  constexpr int kSteps = 10;
  const auto& [family, technique, layout] = GetParam();
  train::Settings settings = tiny_settings(family);
  settings.model.parallel_block = technique.parallel_block;
  settings.model.window = technique.window ? 5 : 0;
  if (technique.lamb) settings.optim.name = "lamb";
  static std::map<std::string, Outcome> references;
  Outcome& reference = references[family + technique.name];
  if (reference.losses.empty()) reference = run_threads(settings, kSteps);
  ASSERT_EQ(reference.losses.size(), std::size_t{kSteps});
  ASSERT_LT(reference.losses.back(), reference.losses.front() - 0.05) << "the reference does not learn";

  settings = with(settings, layout);
  settings.overlap.tp = technique.tp;
  settings.overlap.dp_message = 1;
  if (technique.zero_bubble) settings.mesh.schedule = "zb-h1";
  const Outcome outcome = run_threads(settings, kSteps);
  // The tolerances of parity_test.cpp, for its reasons.
  const Distance gradients = distance(reference.gradients, outcome.gradients);
  EXPECT_LE(gradients.value, 1e-5) << gradients.name;
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  for (std::size_t i = 0; i < reference.losses.size(); ++i) EXPECT_NEAR(outcome.losses[i], reference.losses[i], 1e-4);
  EXPECT_NEAR(outcome.norms[0], reference.norms[0], 1e-5 * reference.norms[0]);
  EXPECT_NEAR(outcome.valid_loss, reference.valid_loss, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Parity, Techniques,
                         testing::Combine(testing::Values("gpt", "llama"), testing::ValuesIn(kTechniques),
                                          testing::ValuesIn(kTechniqueLayouts)),
                         [](const testing::TestParamInfo<Techniques::ParamType>& run) {
                           return std::get<0>(run.param) + "_" + std::get<1>(run.param).name + "_" +
                                  std::get<2>(run.param).name();
                         });

INSTANTIATE_TEST_SUITE_P(ParityOfExperts, Techniques,
                         testing::Combine(testing::Values("moe"),
                                          testing::Values(kTechniques[0], kTechniques[2], kTechniques[3],
                                                          kTechniques[4]),
                                          testing::ValuesIn(kTechniqueLayouts)),
                         [](const testing::TestParamInfo<Techniques::ParamType>& run) {
                           return std::string(std::get<1>(run.param).name) + "_" + std::get<2>(run.param).name();
                         });

// Blocks a stream until it is opened.
class Gate final : public tensor::AsyncTask {
 public:
  bool step(const tensor::CpuWaker& waker) override {
    const std::lock_guard lock(mutex_);
    waker_ = waker;
    return open_;
  }
  void cancel(const Error&) noexcept override {}
  void open() {
    std::optional<tensor::CpuWaker> waker;
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
      waker = waker_;
    }
    if (waker) waker->wake();
  }

 private:
  std::mutex mutex_;
  bool open_ = false;
  std::optional<tensor::CpuWaker> waker_;
};

// A world that blocks all operations of groups whose name begins with `held` until the gate opens.
class Held final : public comm::World {
 public:
  Held(std::unique_ptr<comm::World> world, std::string held, std::shared_ptr<Gate> gate)
      : world_(std::move(world)), held_(std::move(held)), gate_(std::move(gate)) {}
  std::string_view kind() const override { return world_->kind(); }
  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  int ranks_on_node() const override { return world_->ranks_on_node(); }
  std::string node(int rank) const override { return world_->node(rank); }
  comm::Store& store() override { return world_->store(); }
  std::unique_ptr<comm::Communicator> open(const comm::Group& group, tensor::Stream& stream) override {
    streams_[group.name] = &stream;
    if (group.name.starts_with(held_)) dynamic_cast<tensor::CpuStream&>(stream).submit_async(gate_);
    return world_->open(group, stream);
  }
  void abort(const Error& cause) noexcept override { world_->abort(cause); }
  std::optional<Cause> cause() const override { return world_->cause(); }
  void close() override { world_->close(); }

  tensor::Stream& stream(const std::string& group) const { return *streams_.at(group); }

 private:
  std::unique_ptr<comm::World> world_;
  std::string held_;
  std::shared_ptr<Gate> gate_;
  std::map<std::string, tensor::Stream*> streams_;  // by group
};

// Blocks gradient reductions on all ranks. With overlap, the backwards after a chunk's reduction still run, so that the
// last activation gradient reaches the first stage; without overlap they wait.
TEST(Overlap, BackwardsContinueDuringGradientReduction) {
  for (const bool overlap : {true, false}) {
    train::Settings settings = with(tiny_settings("gpt"), {2, 1, 2, 2, true, 1});
    settings.overlap.dp = overlap;
    const train::Plan plan = train::make_plan(settings, 4);
    tensor::MatmulCache matmuls;
    tensor::CpuPool pool(tensor::CpuPool::size_for(2, 4, 4));
    comm::ThreadHub hub(4, std::chrono::seconds(60));
    std::vector<std::shared_ptr<Gate>> gates;
    for (int rank = 0; rank < 4; ++rank) gates.push_back(std::make_shared<Gate>());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        Held world(hub.world(rank), "dp", gates[static_cast<std::size_t>(rank)]);
        tensor::CpuDevice device(pool, matmuls);
        train::Engine engine(plan, world, device);
        engine.initialize(1);
        std::vector<std::int32_t> tokens, targets;
        fill_batch(plan, 0, engine.at().dp, tokens, targets);
        engine.issue_step(0, 1e-3, tokens, targets);
        if (engine.at().pp == 1) {
          const tensor::Event last_sent = world.stream(fmt::format("pp.bwd[dp {} tp 0] 1>0", engine.at().dp)).record();
          if (overlap) {
            last_sent.synchronize();
          } else {
            EXPECT_FALSE(last_sent.ready());
          }
        }
        gates[static_cast<std::size_t>(rank)]->open();
        EXPECT_GT(engine.finish_step(0).loss, 0);
        world.close();
      });
    }
  }
}

}  // namespace
}  // namespace ms::testing_case
