// [optim] shard_group: the state is sharded within groups of dp, and gradients are reduced within a group, then across.
// That is another order of the same sums: losses agree within the tolerance of the parity tests, and bit by bit where
// sums are exact. Across groups only shards of gradients travel.
#include <gtest/gtest.h>

#include <mutex>

#include "train/simulate/sim_issuer.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

Layout grouped(Layout layout, int size) {
  layout.shard_group = size;
  return layout;
}

struct GroupedCase {
  const char* family;
  Layout layout;
  const char* optimizer = "adamw";
  bool tied = false;
  std::string name() const { return fmt::format("{}_{}_{}{}", family, optimizer, layout.name(), tied ? "_tied" : ""); }
};
void PrintTo(const GroupedCase& run, std::ostream* out) { *out << run.name(); }

class ShardGroup : public testing::TestWithParam<GroupedCase> {};

TEST_P(ShardGroup, TrainsAsOneGroupDoes) {
  const GroupedCase& run = GetParam();
  const bool muon = std::string_view(run.optimizer) == "muon";
  // Muon rounds to bf16 within its iteration, so another order of a sum is 1e-3 of an update now and then, and grows
  // from step to step: the more so with experts, whose choices change with it. Its bits are what ChangeNoBitOfExactSums
  // asks.
  const int steps = muon ? 5 : 10;
  train::Settings settings = with(tiny_settings(run.family), run.layout);
  settings.model.tied_embeddings = run.tied;
  settings.optim.name = run.optimizer;
  settings.overlap.dp_message = 1;
  const Outcome outcome = run_threads(settings, steps);
  settings.optim.shard_group = 0;
  const Outcome reference = run_threads(settings, steps);
  ASSERT_EQ(reference.losses.size(), static_cast<std::size_t>(steps));
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  // The tolerances of parity_test.cpp and muon_test.cpp, for their reasons.
  const double tolerance = muon ? 1e-3 : 1e-4;
  const Distance gradients = distance(reference.gradients, outcome.gradients);
  EXPECT_LE(gradients.value, 1e-5) << gradients.name;
  for (std::size_t i = 0; i < reference.losses.size(); ++i)
    EXPECT_NEAR(outcome.losses[i], reference.losses[i], tolerance) << "step " << i;
  EXPECT_NEAR(outcome.norms[0], reference.norms[0], 1e-5 * reference.norms[0]);
  EXPECT_NEAR(outcome.valid_loss, reference.valid_loss, tolerance);
}

Layout of_sequences(Layout layout) {
  layout.cp = 2;
  return layout;
}

// Every axis beside dp; experts that are sharded within a group, and such as each group holds once.
const GroupedCase kGrouped[] = {
    {"gpt", grouped({4, 1, 1, 1, true, 1}, 2), "adamw", true},
    {"llama", grouped({8, 1, 1, 1, true, 2}, 4)},
    {"gpt", grouped({4, 1, 2, 2, true, 2}, 2), "adamw", true},
    {"llama", grouped({4, 2, 1, 1, true, 1}, 2), "lamb"},
    {"llama", grouped({4, 2, 1, 1, true, 2}, 2), "muon"},
    {"llama", of_sequences(grouped({4, 1, 1, 1, true, 1}, 4))},
    {"moe", grouped({8, 1, 1, 1, true, 1, 2}, 4)},
    {"moe", grouped({4, 1, 2, 1, true, 2, 2}, 2), "muon"},
};
INSTANTIATE_TEST_SUITE_P(All, ShardGroup, testing::ValuesIn(kGrouped),
                         [](const auto& row) { return row.param.name(); });

// Trains on equal rows, whose gradients have exact sums; returns the losses and the parameters.
Outcome train_equal_rows(train::Settings settings) {
  settings.train.global_batch = 4;
  train_matrices_only(settings);
  Outcome outcome;
  std::mutex mutex;  // ranks are threads
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    device.races().enable(true);
    train::Engine engine(plan, world, device);
    engine.initialize(1);
    std::vector<std::int32_t> tokens, targets;
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) {
      fill_batch(plan, step, 0, tokens, targets);
      equal_rows(plan, tokens, targets);
      engine.issue_step(step, 3e-3, tokens, targets);
      losses.push_back(engine.finish_step(step).loss);
    }
    collect_parameters(engine, outcome.parameters);
    const std::lock_guard lock(mutex);
    outcome.losses = losses;
  });
  return outcome;
}

TEST(ShardGroups, ChangeNoBitOfExactSums) {
  for (const char* optimizer : {"adamw", "muon"}) {
    train::Settings settings = with(tiny_settings("llama"), {4, 1, 1, 1, true, 1});
    settings.optim.name = optimizer;
    const Outcome reference = train_equal_rows(settings);
    ASSERT_EQ(reference.losses.size(), 3U);
    for (const auto& [zero, overlap] : {std::pair{1, true}, {2, true}, {1, false}, {2, false}}) {
      SCOPED_TRACE(testing::Message() << optimizer << " zero " << zero << " overlap " << overlap);
      settings.optim.zero = zero;
      settings.optim.shard_group = 2;
      settings.overlap.dp = overlap;
      const Outcome outcome = train_equal_rows(settings);
      EXPECT_EQ(outcome.losses, reference.losses);
      EXPECT_TRUE(same_bits(outcome.parameters, reference.parameters));
    }
  }
}

// Chance rounds moments in bf16, the same one on whatever rank.
TEST(Moments, InBf16HaveTheSameBitsForAnyShards) {
  const auto settings_of = [](const Layout& layout) {
    train::Settings settings = with(tiny_settings("llama"), layout);
    settings.train.dtype = "bf16";
    settings.optim.moments_dtype = "bf16";
    return settings;
  };
  const Outcome reference = train_equal_rows(settings_of({1, 1, 1, 1, true, 0}));
  for (const Layout& layout : {Layout{2, 1, 1, 1, true, 0}, Layout{2, 1, 1, 1, true, 1}, Layout{4, 1, 1, 1, true, 2},
                               grouped({4, 1, 1, 1, true, 1}, 2), Layout{4, 1, 1, 1, true, 3}}) {
    SCOPED_TRACE(layout.name());
    const Outcome outcome = train_equal_rows(settings_of(layout));
    EXPECT_EQ(outcome.losses, reference.losses);
    EXPECT_TRUE(same_bits(outcome.parameters, reference.parameters));
  }
}

// Bytes of the operations of a kind that a rank issues in a step, on its groups with a name.
std::int64_t issued_bytes(const comm::SimRecording& step, comm::OpKind kind, const std::string& group) {
  std::int64_t bytes = 0;
  for (const tensor::SimProgram::Stream& stream : step.program.streams) {
    for (const tensor::SimItem& item : stream.items) {
      if (item.kind != tensor::SimItem::Kind::comm_op) continue;
      const comm::SimCommOp& op = step.comm_ops[item.index];
      if (op.kind == kind && step.groups[op.group].name.starts_with(group + "[")) bytes += op.size_bytes;
    }
  }
  return bytes;
}

// Across groups 1 / shard_group of the gradients, once per step; all else stays in a group.
TEST(ShardGroups, SendShardsAcrossGroups) {
  using comm::OpKind;
  for (const int zero : {1, 2}) {
    for (const int size : {2, 4}) {
      SCOPED_TRACE(testing::Message() << "zero " << zero << " shard group " << size);
      train::Settings settings = with(tiny_settings("moe"), grouped({8, 1, 1, 1, true, zero, 2}, size));
      settings.train.global_batch = 32;
      const train::Plan plan = train::make_plan(settings, 8);
      ASSERT_EQ(plan.microbatches, 4);
      train::SimIssuer issuer(plan, 8, 5, nullptr, 1);
      issuer.step(0);
      const comm::SimRecording step = issuer.step(1);
      for (const bool experts : {false, true}) {
        const std::string axis = experts ? "edp" : "dp";
        std::int64_t elements = 0;
        for (const nn::SpanSpec& span : plan.spans(0, 0, 0, 5))
          if (span.experts == experts) elements += span.numel;
        ASSERT_GT(elements, 0);
        const std::int64_t bytes = 4 * elements, shards = plan.mesh.shard_place(experts, {}).shards;
        ASSERT_EQ(shards, experts ? size / 2 : size);
        // Groups of one rank, of experts that a group of two holds once, reduce over all of edp.
        EXPECT_EQ(issued_bytes(step, OpKind::all_reduce, shards > 1 ? axis + ".replicate" : axis), bytes / shards);
        const std::int64_t in_group = shards > 1 ? bytes : 0;
        EXPECT_EQ(issued_bytes(step, OpKind::reduce_scatter, axis + ".shard"), in_group * (zero == 2 ? 4 : 1));
        EXPECT_EQ(issued_bytes(step, OpKind::all_gather, axis + ".shard"), in_group);
        for (const OpKind kind : {OpKind::reduce_scatter, OpKind::all_gather})
          EXPECT_EQ(issued_bytes(step, kind, axis) + issued_bytes(step, kind, axis + ".replicate"), 0);
      }
    }
  }
}

}  // namespace
}  // namespace ms::testing_case
