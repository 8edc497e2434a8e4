// Resharding: a run that saves in one layout resumes in any other. The loaded state equals the saved one bit by bit,
// the optimizer's moments included; the losses after it equal those of the run that saved, within the parity tolerance,
// and bit by bit in the same layout.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <ostream>
#include <thread>

#include "comm/thread_world.h"
#include "support/files.h"
#include "train/checkpoint/checkpoints.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kSaved = 2, kSteps = 4;
constexpr double kLossTolerance = 1e-4;  // of the parity tests

// 1 to 8 ranks; 2, 3 and 4 parts in every dimension; every ZeRO stage; two chunks with and without dp and tp.
const std::vector<Layout> kLayouts = {
    {1, 1, 1, 1, true, 1}, {2, 1, 1, 1, true, 0}, {3, 1, 1, 1, true, 1}, {4, 1, 1, 1, true, 2},
    {1, 2, 1, 1, true, 1}, {1, 3, 1, 1, true, 1}, {1, 1, 3, 2, true, 1}, {2, 1, 2, 1, true, 0},
    {2, 2, 2, 2, true, 1}, {3, 2, 1, 1, true, 3}, {2, 3, 1, 1, true, 0}, {1, 2, 3, 1, true, 1},
};

struct Family {
  std::string family;
  bool tied;
  std::string dtype;
  std::string optimizer = "adamw";
  std::string name() const {
    return family + (tied ? "_tied_" : "_") + dtype + (optimizer == "adamw" ? "" : "_" + optimizer);
  }
};

void PrintTo(const Family& family, std::ostream* out) { *out << family.name(); }

// A vocabulary of 61 is padded wherever tp is not 1; a tied embedding lies on two stages.
train::Settings settings_of(const Family& family, const Layout& layout, const std::string& dir) {
  train::Settings settings = with(tiny_settings(family.family), layout);
  settings.model.layers = 6;
  settings.model.hidden = 48;
  settings.model.heads = 12;
  settings.model.kv_heads = family.family == "gpt" ? 0 : 6;
  settings.model.seq = 12;
  settings.model.tied_embeddings = family.tied;
  settings.train.global_batch = 12;
  settings.train.dtype = family.dtype;
  settings.optim.name = family.optimizer;
  if (layout.tp == 1) settings.overlap.dp_message = 1;  // flat arrays per layer, where the others have one per chunk
  settings.checkpoint.dir = dir;
  settings.checkpoint.every_s = 0;
  return settings;
}

struct State {
  Matrices parameters, first_moments, second_moments;
};
struct Training {
  std::int64_t resumed_from = -1;  // -1: from the beginning
  State at_save;                   // after the step that was saved or loaded
  Matrices parameters;             // at the end
  std::vector<double> losses;      // of the steps after it
};

// Trains to kSteps, from the checkpoint in the directory if there is one; saves step kSaved when it passes it.
Training train_run(const train::Settings& settings, bool of_equal_rows = false) {
  Training run;
  std::mutex mutex;  // ranks are threads
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    std::optional<train::Checkpoints> checkpoints;
    checkpoints.emplace(plan, "", world, engine, device, false);
    const train::Origin origin = checkpoints->resume("tokens");
    if (!origin.restored) engine.initialize(static_cast<std::uint64_t>(settings.train.seed));
    std::vector<std::int32_t> tokens, targets;
    std::vector<double> losses;
    for (std::int64_t step = origin.step; step < kSteps; ++step) {
      if (step == kSaved) {
        if (!origin.restored) checkpoints->finish(step, step * settings.train.global_batch);
        collect_moments(engine, run.at_save.first_moments, run.at_save.second_moments);
        collect_parameters(engine, run.at_save.parameters);
      }
      tokens.clear();
      targets.clear();
      if (engine.needs_input()) fill_batch(plan, step, of_equal_rows ? 0 : engine.at().dp, tokens, targets);
      if (of_equal_rows) equal_rows(plan, tokens, targets);
      engine.issue_step(step, 3e-3, tokens, targets);
      const double loss = engine.finish_step(step).loss;
      if (step >= kSaved) losses.push_back(loss);
    }
    collect_parameters(engine, run.parameters);
    checkpoints.reset();
    const std::lock_guard lock(mutex);
    run.losses = losses;
    run.resumed_from = origin.restored ? origin.step : -1;
  });
  return run;
}

void expect_same_state(const State& saved, const State& loaded) {
  EXPECT_TRUE(same_bits(saved.parameters, loaded.parameters)) << "parameters";
  EXPECT_TRUE(same_bits(saved.first_moments, loaded.first_moments)) << "first moments";
  EXPECT_TRUE(same_bits(saved.second_moments, loaded.second_moments)) << "second moments";
}

void expect_goes_on(const Training& saved, const Training& loaded, bool same_layout, double tolerance) {
  ASSERT_EQ(loaded.resumed_from, kSaved);
  expect_same_state(saved.at_save, loaded.at_save);
  ASSERT_EQ(loaded.losses.size(), std::size_t{kSteps - kSaved});
  for (std::size_t i = 0; i < loaded.losses.size(); ++i) {
    EXPECT_NEAR(loaded.losses[i], saved.losses[i], tolerance) << "step " << kSaved + i;
  }
  if (!same_layout) return;
  EXPECT_EQ(loaded.losses, saved.losses);
  EXPECT_TRUE(same_bits(saved.parameters, loaded.parameters)) << "parameters at the end";
}

class Reshard : public testing::TestWithParam<std::tuple<Family, Layout>> {};

// One layout saves, every one loads.
TEST_P(Reshard, ResumesInEveryLayout) {
  const auto& [family, from] = GetParam();
  const test::TempDir dir;
  const Training saved = train_run(settings_of(family, from, dir.path()));
  ASSERT_EQ(saved.resumed_from, -1);
  ASSERT_EQ(saved.losses.size(), std::size_t{kSteps - kSaved});
  for (const auto& [name, moments] : saved.at_save.first_moments) {
    ASSERT_TRUE(std::any_of(moments.values.begin(), moments.values.end(), [](float x) { return x != 0; })) << name;
  }
  for (const auto& [name, moments] : saved.at_save.second_moments) {
    if (family.optimizer == "muon" && name.starts_with("layers.") && moments.rows > 1) continue;
    ASSERT_TRUE(std::any_of(moments.values.begin(), moments.values.end(), [](float x) { return x != 0; })) << name;
  }
  for (const Layout& to : kLayouts) {
    if (family.family != "gpt" && 6 % to.tp != 0) continue;  // six heads of keys and values
    SCOPED_TRACE(to.name());
    // bf16 rounds the same sums differently in every layout: the parity tests' tolerance for it.
    expect_goes_on(saved, train_run(settings_of(family, to, dir.path())), to.name() == from.name(),
                   family.dtype == "bf16" ? 0.03 : kLossTolerance);
  }
}

// From the same gradients a run goes on with the same bits on another number of dp ranks.
TEST(ReshardMuon, ContinuesBitByBitOnOtherDpRanks) {
  const auto settings_for = [](int dp, int zero, const std::string& dir) {
    train::Settings settings = settings_of({"llama", false, "fp32", "muon"}, {dp, 1, 1, 1, true, zero}, dir);
    settings.train.global_batch = 4;
    train_matrices_only(settings);
    return settings;
  };
  const test::TempDir dir;
  const Training saved = train_run(settings_for(2, 1, dir.path()), true);
  for (const auto& [dp, zero] : {std::pair{1, 0}, {4, 1}, {4, 2}, {4, 3}, {2, 0}}) {
    SCOPED_TRACE(testing::Message() << "dp " << dp << " zero " << zero);
    const Training loaded = train_run(settings_for(dp, zero, dir.path()), true);
    ASSERT_EQ(loaded.resumed_from, kSaved);
    expect_same_state(saved.at_save, loaded.at_save);
    EXPECT_TRUE(same_bits(saved.parameters, loaded.parameters));
  }
}

// A matrix has a momentum or two moments: neither run can go on from the other's checkpoint.
TEST(ReshardMuon, RefusesTheStateOfAnotherOptimizer) {
  for (const auto& [from, to] : {std::pair{"adamw", "muon"}, {"muon", "adamw"}}) {
    const test::TempDir dir;
    train_run(settings_of({"gpt", false, "fp32", from}, {1, 1, 1, 1, true, 1}, dir.path()));
    const train::Settings settings = settings_of({"gpt", false, "fp32", to}, {1, 1, 1, 1, true, 1}, dir.path());
    on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
      train::Engine engine(plan, world, device);
      train::Checkpoints checkpoints(plan, "", world, engine, device, false);
      try {
        checkpoints.resume("tokens");
        ADD_FAILURE() << "the run resumed";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), "ckpt.mismatch");
        EXPECT_EQ(error.blame(), Blame::user);
      }
    });
  }
}

std::string reshard_name(const testing::TestParamInfo<Reshard::ParamType>& info) {
  return std::get<0>(info.param).name() + "_" + std::get<1>(info.param).name();
}
INSTANTIATE_TEST_SUITE_P(All, Reshard,
                         testing::Combine(testing::Values(Family{"gpt", true, "fp32"}), testing::ValuesIn(kLayouts)),
                         reshard_name);
INSTANTIATE_TEST_SUITE_P(Muon, Reshard,
                         testing::Combine(testing::Values(Family{"gpt", true, "fp32", "muon"},
                                                          Family{"llama", false, "bf16", "muon"}),
                                          testing::Values(Layout{2, 1, 1, 1, true, 0}, Layout{3, 2, 1, 1, true, 2},
                                                          Layout{2, 2, 2, 2, true, 1})),
                         reshard_name);
// Master weights, no biases, grouped-query attention with half as many key-value heads, an untied output layer.
INSTANTIATE_TEST_SUITE_P(Other, Reshard,
                         testing::Combine(testing::Values(Family{"llama", false, "bf16"}, Family{"moe", false, "fp32"}),
                                          testing::Values(Layout{2, 3, 1, 1, true, 1}, Layout{1, 2, 3, 1, true, 1})),
                         reshard_name);

// From every number of ranks that share the experts to every other one.
TEST(ReshardExperts, Resumes) {
  const Layout layouts[] = {
      {4, 1, 1, 1, true, 1, 4},         {4, 1, 1, 1, true, 2, 2},         {2, 2, 1, 1, true, 0, 2},
      {2, 1, 2, 1, true, 1, 2},         {1, 1, 3, 1, true, 1, 1},         {3, 2, 1, 1, true, 1, 1},
      folded({2, 2, 1, 1, true, 1, 4}), folded({2, 2, 1, 1, true, 0, 2}), folded({1, 2, 2, 1, true, 2, 1})};
  for (const Layout& from : {layouts[0], layouts[2], layouts[4], layouts[6], layouts[8]}) {
    const test::TempDir dir;
    const Training saved = train_run(settings_of({"dots", false, "fp32"}, from, dir.path()));
    for (const Layout& to : layouts) {
      SCOPED_TRACE(from.name() + " to " + to.name());
      expect_goes_on(saved, train_run(settings_of({"dots", false, "fp32"}, to, dir.path())), to.name() == from.name(),
                     kLossTolerance);
    }
  }
}

// From every number of ranks that share sequences to every other one, and to none.
TEST(ReshardContext, Resumes) {
  const auto over = [](int cp, Layout layout) {
    layout.cp = cp;
    return layout;
  };
  const Layout layouts[] = {over(2, {1, 1, 1, 1, true, 1}), over(1, {1, 1, 1, 1, true, 1}),
                            over(3, {1, 1, 2, 1, true, 2}), over(2, {2, 2, 1, 1, true, 0}),
                            over(1, {3, 2, 1, 1, true, 1})};
  for (const Layout& from : {layouts[0], layouts[1], layouts[3]}) {
    const test::TempDir dir;
    const Training saved = train_run(settings_of({"llama", false, "fp32"}, from, dir.path()));
    for (const Layout& to : layouts) {
      SCOPED_TRACE(from.name() + " to " + to.name());
      expect_goes_on(saved, train_run(settings_of({"llama", false, "fp32"}, to, dir.path())), to.name() == from.name(),
                     kLossTolerance);
    }
  }
}

// From one size of shard groups to another, to all of dp and to none, with matrices that are taken whole, experts and
// cp.
TEST(ReshardShardGroups, Resumes) {
  const auto grouped = [](Layout layout, int size) {
    layout.shard_group = size;
    return layout;
  };
  const auto resumes = [](const Family& family, const std::vector<Layout>& layouts, std::size_t savers) {
    for (std::size_t from = 0; from < savers; ++from) {
      const test::TempDir dir;
      const Training saved = train_run(settings_of(family, layouts[from], dir.path()));
      for (const Layout& to : layouts) {
        SCOPED_TRACE(family.name() + ", " + layouts[from].name() + " to " + to.name());
        expect_goes_on(saved, train_run(settings_of(family, to, dir.path())), to.name() == layouts[from].name(),
                       family.optimizer == "muon" || family.dtype == "bf16" ? 0.03 : kLossTolerance);
      }
    }
  };
  const Layout of_two = grouped({4, 1, 1, 1, true, 1}, 2), of_three = grouped({6, 1, 1, 1, true, 2}, 3);
  const Layout all{4, 1, 1, 1, true, 1}, none{4, 1, 1, 1, true, 0}, stages = grouped({4, 2, 1, 1, true, 1}, 2);
  Layout sequences = grouped({2, 1, 2, 1, true, 1}, 2);
  sequences.cp = 2;
  resumes({"gpt", true, "fp32"}, {of_two, of_three, all, none, stages}, 3);
  resumes({"llama", false, "bf16", "muon"}, {of_two, sequences, all}, 2);
  resumes({"dots", false, "fp32"}, {grouped({4, 1, 1, 1, true, 1, 2}, 2), {4, 1, 1, 1, true, 2, 2}, of_two}, 2);
}

// The compute type may change, too: values that are exact in it stay exact.
TEST(ReshardType, ResumesInAnotherType) {
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"bf16", "fp32"}, {"fp32", "bf16"}}) {
    SCOPED_TRACE(from + " to " + to);
    const test::TempDir dir;
    const Training saved = train_run(settings_of({"gpt", true, from}, {2, 2, 1, 1, true, 1}, dir.path()));
    const Training loaded = train_run(settings_of({"gpt", true, to}, {3, 1, 2, 1, true, 1}, dir.path()));
    ASSERT_EQ(loaded.resumed_from, kSaved);
    EXPECT_TRUE(same_bits(saved.at_save.first_moments, loaded.at_save.first_moments));
    EXPECT_TRUE(same_bits(saved.at_save.second_moments, loaded.at_save.second_moments));
    EXPECT_LT(distance(saved.at_save.parameters, loaded.at_save.parameters).value, 1.0 / 256);
    for (std::size_t i = 0; i < loaded.losses.size(); ++i) EXPECT_NEAR(loaded.losses[i], saved.losses[i], 0.03);
  }
}

// So may the type of the moments. In bf16 they resume in any layout, and go on with the bits of the run that saved.
TEST(ReshardType, ResumesWithMomentsInBf16) {
  const auto with_moments = [](const char* type, const Layout& layout, const test::TempDir& dir) {
    train::Settings settings = settings_of({"llama", false, "bf16"}, layout, dir.path());
    settings.optim.moments_dtype = type;
    return settings;
  };
  const Layout from{2, 2, 1, 1, true, 1};
  for (const char* type : {"bf16", "fp32"}) {
    const char* const other = std::string_view(type) == "bf16" ? "fp32" : "bf16";
    const test::TempDir dir;
    const Training saved = train_run(with_moments(type, from, dir));
    for (const Layout& to : {from, Layout{3, 1, 2, 1, true, 2}, Layout{2, 2, 1, 1, true, 3}}) {
      SCOPED_TRACE(fmt::format("{}, {}", type, to.name()));
      expect_goes_on(saved, train_run(with_moments(type, to, dir)), to.name() == from.name(), 0.03);
    }
    const Training loaded = train_run(with_moments(other, from, dir));
    ASSERT_EQ(loaded.resumed_from, kSaved);
    EXPECT_TRUE(same_bits(saved.at_save.parameters, loaded.at_save.parameters));
    const double rounding = std::string_view(other) == "bf16" ? 1.0 / 256 : 0;
    EXPECT_LE(distance(saved.at_save.first_moments, loaded.at_save.first_moments).value, rounding);
    EXPECT_LE(distance(saved.at_save.second_moments, loaded.at_save.second_moments).value, rounding);
    for (std::size_t i = 0; i < loaded.losses.size(); ++i) EXPECT_NEAR(loaded.losses[i], saved.losses[i], 0.03);
  }
}

// LAMB has the same state as AdamW, and recomputes a parameter's norms in any layout.
TEST(ReshardLamb, Resumes) {
  const Family family{"gpt", true, "fp32"};
  const Layout from{2, 2, 2, 2, true, 1};
  const test::TempDir dir;
  const auto with_lamb = [&](const Layout& layout) {
    train::Settings settings = settings_of(family, layout, dir.path());
    settings.optim.name = "lamb";
    return settings;
  };
  const Training saved = train_run(with_lamb(from));
  for (const Layout& to : {from, Layout{3, 2, 1, 1, true, 2}, Layout{2, 1, 3, 1, true, 0}}) {
    SCOPED_TRACE(to.name());
    expect_goes_on(saved, train_run(with_lamb(to)), to.name() == from.name(), kLossTolerance);
  }
}

// The update of a step waits for a copy of the previous state that is still in progress, however long it takes.
TEST(Engine, UpdateWaitsForTheCopy) {
  const test::TempDir dir;
  const train::Settings settings = settings_of({"gpt", true, "bf16"}, {1, 1, 1, 1, true, 1}, dir.path());
  const train::Plan plan = train::make_plan(settings, 1);
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool({.workers = 2, .threads_per_op = 1});
  tensor::CpuDevice device(pool, matmuls);
  comm::ThreadHub hub(1, std::chrono::seconds(60));
  const std::unique_ptr<comm::World> world = hub.world(0);
  train::Engine engine(plan, *world, device);
  engine.initialize(1);
  engine.synchronize();
  const auto content = [&] {
    std::vector<std::byte> bytes;
    for (const ckpt::Held& held : engine.state()) {
      bytes.insert(bytes.end(), held.tensor.data, held.tensor.data + held.tensor.size_bytes());
    }
    return bytes;
  };
  const std::vector<std::byte> before = content();
  std::vector<std::byte> copied;
  const std::unique_ptr<tensor::Stream> stream = device.make_stream("copy", tensor::StreamKind::comm);
  stream->wait(engine.state_ready());
  // Longer than a step takes, so that an update that does not wait is detected.
  dynamic_cast<tensor::CpuStream&>(*stream).call([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    copied = content();
  });
  engine.update_after(stream->record());
  std::vector<std::int32_t> tokens, targets;
  fill_batch(plan, 0, 0, tokens, targets);
  engine.issue_step(0, 3e-3, tokens, targets);
  engine.finish_step(0);
  EXPECT_TRUE(copied == before);
  EXPECT_FALSE(content() == before);
  engine.synchronize();
}

}  // namespace
}  // namespace ms::testing_case
