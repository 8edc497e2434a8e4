// [optim] zero = 3: parameters are sharded, gathered before their use and freed behind it. Nothing that a step computes
// changes: it has the bits of stage 2, and of stage 1 where a step is one microbatch.
#include <gtest/gtest.h>

#include <mutex>

#include "train/simulate/sim_issuer.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

// Trains four steps and evaluates, with all races between streams reported.
Outcome trained(const train::Settings& settings) {
  Outcome outcome;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    device.races().enable(true);
    run_rank(plan, world, device, 4, outcome);
  });
  return outcome;
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.valid_loss, b.valid_loss);
  EXPECT_TRUE(same_bits(a.gradients, b.gradients));
  EXPECT_TRUE(same_bits(a.parameters, b.parameters));
}

Layout in_groups(Layout layout, int size) {
  layout.shard_group = size;
  return layout;
}
Layout of_sequences(Layout layout) {
  layout.cp = 2;
  return layout;
}

struct ShardedCase {
  const char* family;
  Layout layout;
  const char* optimizer = "adamw";
  bool tied = false;
  const char* recompute = "none";
  const char* schedule = "1f1b";
  std::string name() const {
    std::string made =
        fmt::format("{}_{}_{}_{}_{}{}", family, optimizer, layout.name(), recompute, schedule, tied ? "_tied" : "");
    std::ranges::replace(made, '-', '_');
    return made;
  }
};
void PrintTo(const ShardedCase& run, std::ostream* out) { *out << run.name(); }

class ShardedParameters : public testing::TestWithParam<ShardedCase> {};

// A layer is a span, and the embedding and the head are spans, too.
train::Settings settings_of(const ShardedCase& run) {
  train::Settings settings = with(tiny_settings(run.family), run.layout);
  settings.model.tied_embeddings = run.tied;
  settings.optim.name = run.optimizer;
  settings.train.recompute = run.recompute;
  settings.mesh.schedule = run.schedule;
  settings.overlap.dp_message = 1;
  return settings;
}

TEST_P(ShardedParameters, HaveTheBitsOfStage2) {
  train::Settings settings = settings_of(GetParam());
  settings.optim.zero = 2;
  const Outcome reference = trained(settings);
  ASSERT_EQ(reference.losses.size(), 4U);
  settings.optim.zero = 3;
  for (const std::int64_t prefetch : {0, 1, 2, 100}) {
    SCOPED_TRACE(testing::Message() << "prefetch " << prefetch);
    settings.optim.prefetch = prefetch;
    expect_same_bits(trained(settings), reference);
  }
  settings.overlap.dp = settings.overlap.pp = false;
  expect_same_bits(trained(settings), reference);
}

const ShardedCase kSharded[] = {
    {"gpt", {4, 1, 1, 1, true, 3}, "adamw", true},
    {"llama", {2, 1, 2, 2, true, 3}},
    {"gpt", {2, 2, 2, 1, true, 3}, "adamw", true, "full"},
    {"neox", {2, 2, 1, 1, true, 3}, "lamb", false, "selective"},
    {"gpt", {2, 1, 2, 1, true, 3}, "adamw", false, "none", "zb-h1"},
    {"llama", in_groups({4, 1, 2, 1, true, 3}, 2), "muon"},
    {"llama", of_sequences({2, 1, 1, 1, true, 3})},
    {"moe", {4, 1, 1, 1, true, 3, 2}},
    {"dots", {4, 1, 2, 1, true, 3, 4}},  // experts that one rank has each
};
INSTANTIATE_TEST_SUITE_P(All, ShardedParameters, testing::ValuesIn(kSharded),
                         [](const auto& row) { return row.param.name(); });

// Of several microbatches stage 1 adds the gradients before it reduces them, stages 2 and 3 after.
TEST(ShardedParameters, HaveTheBitsOfStage1IfAStepIsOneMicrobatch) {
  for (const char* dtype : {"fp32", "bf16"}) {
    train::Settings settings = with(tiny_settings("llama"), {4, 2, 1, 1, true, 1});
    settings.train.global_batch = 4;
    settings.train.dtype = dtype;
    settings.overlap.dp_message = 1;
    const Outcome reference = trained(settings);
    settings.optim.zero = 3;
    expect_same_bits(trained(settings), reference);
  }
}

TEST(ShardedParameters, OfLayersTogetherHaveTheSameBits) {
  train::Settings settings = with(tiny_settings("gpt"), {2, 1, 1, 1, true, 2});
  settings.overlap.dp_message = 200 << 10;
  const std::size_t spans = train::make_plan(settings, 2).spans(0, 0, 0).size();
  ASSERT_TRUE(spans > 1 && spans < 8) << spans;
  const Outcome reference = trained(settings);
  settings.optim.zero = 3;
  expect_same_bits(trained(settings), reference);
}

// Beside the shards: two spans of layers with their gradients, so many as are ahead of their use and one more, for
// gpt's biases another one, and of the longer of the embedding and the head one of each.
TEST(ShardedParameters, TakeTheMemoryOfTheSpansInUse) {
  for (const char* family : {"gpt", "llama"}) {
    for (const std::int64_t prefetch : {0, 1, 100}) {
      train::Settings settings = with(tiny_settings(family), {4, 1, 2, 2, true, 3});
      settings.optim.prefetch = prefetch;
      settings.overlap.dp_message = 1;
      const train::Plan plan = train::make_plan(settings, 8);
      std::int64_t spans = 0, layer = 0, vocabulary = 0, shards = 0;
      for (int c = 0; c < plan.chunks; ++c) {
        for (const nn::SpanSpec& span : plan.spans(0, 0, c)) {
          const bool has_layers = span.end > span.place;
          spans += has_layers ? 1 : 0;
          (has_layers ? layer : vocabulary) = std::max(has_layers ? layer : vocabulary, span.numel);
          shards += span.numel / 4;
        }
      }
      ASSERT_TRUE(spans == 4 && vocabulary > 0);
      const std::int64_t values = std::min(spans, 1 + prefetch + (settings.model.is_gpt() ? 1 : 0));
      const train::RankMemory memory = train::rank_memory(plan, {});
      const auto bytes_of = [&](std::string_view what) {
        return std::ranges::find(memory.rows, what, &train::MemoryRow::what)->bytes;
      };
      EXPECT_EQ(bytes_of("buffers of gathered parameters and gradients"), 4 * ((values + 2) * layer + 2 * vocabulary))
          << family << ", prefetch " << prefetch;
      EXPECT_EQ(bytes_of("parameters, gradients, optimizer"), 16 * shards);
    }
  }
}

// Elements that a rank gathers in a step.
std::int64_t gathered_elements(const train::Settings& settings) {
  const train::Plan plan = train::make_plan(settings, static_cast<int>(settings.mesh.ranks()));
  train::SimIssuer issuer(plan, plan.mesh.size(), 0, nullptr, 1);
  issuer.step(0);
  const comm::SimRecording step = issuer.step(1);
  std::int64_t bytes = 0;
  for (const tensor::SimProgram::Stream& stream : step.program.streams) {
    for (const tensor::SimItem& item : stream.items) {
      if (item.kind != tensor::SimItem::Kind::comm_op) continue;
      const comm::SimCommOp& op = step.comm_ops[item.index];
      if (op.kind == comm::OpKind::all_gather && step.groups[op.group].name.starts_with("dp[")) bytes += op.size_bytes;
    }
  }
  return bytes / 4;
}

// A microbatch gathers all spans twice, but for what is still there: forwards and backwards turn around at the last and
// at the first layers, and a backward does not read an embedding.
TEST(ShardedParameters, AreGatheredTwiceForEachMicrobatch) {
  train::Settings settings = with(tiny_settings("llama"), {2, 1, 1, 1, true, 3});
  settings.overlap.dp_message = 1;
  constexpr std::int64_t kMicrobatches = 4;
  const train::Plan plan = train::make_plan(settings, 2);
  ASSERT_EQ(plan.microbatches, kMicrobatches);
  const std::vector<nn::SpanSpec> spans = plan.spans(0, 0, 0);
  ASSERT_EQ(spans.size(), 10U);  // an embedding, layers, a head
  const std::int64_t layer = spans[1].numel, first = spans.front().numel, last = spans.back().numel;
  std::int64_t all = 0;
  for (const nn::SpanSpec& span : spans) all += span.numel;
  for (const std::int64_t prefetch : {0, 1, 3}) {
    settings.optim.prefetch = prefetch;
    const std::int64_t there = prefetch + 1;  // layers, at each turn
    const std::int64_t layers = 2 * kMicrobatches * (8 - there) + there;
    EXPECT_NEAR(static_cast<double>(gathered_elements(settings)),
                static_cast<double>(layers * layer + kMicrobatches * (first + last)), static_cast<double>(2 * layer))
        << prefetch;
  }
  settings.optim.prefetch = 100;
  EXPECT_NEAR(static_cast<double>(gathered_elements(settings)),
              static_cast<double>(8 * layer + kMicrobatches * (first + last)), static_cast<double>(layer));
  settings.optim.zero = 2;
  EXPECT_EQ(gathered_elements(settings), all);
}

}  // namespace
}  // namespace ms::testing_case
