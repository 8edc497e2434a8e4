// The pipeline's bubble of steps that were played: exactly the formula's where transfers take no time.
#include "tracepp/steps/bubble.h"

#include <gtest/gtest.h>

#include "made_run.h"

namespace ms::tracepp {
namespace {

Bubble bubble_of(const RunTrace& run) { return measure_bubble(run, match_operations(run), break_down(run)); }

TEST(Bubble, Of1F1BMatchesTheFormula) {
  PipelineSpec spec;
  spec.mesh = {.dp = 2, .pp = 4, .tp = 2};
  spec.microbatches = 8;
  spec.pp_ns = 0;
  spec.dp_ns = 0;
  const Bubble bubble = bubble_of(play_pipeline(spec));
  ASSERT_EQ(bubble.unknown, "");
  EXPECT_EQ(bubble.schedule->name, "1f1b");
  EXPECT_EQ(bubble.microbatches, 8);
  EXPECT_NEAR(bubble.forward_s, 1e-3, 1e-9);
  EXPECT_NEAR(bubble.backward_s, 2e-3, 1e-9);
  EXPECT_NEAR(bubble.expected_s, 9e-3, 1e-9);
  EXPECT_NEAR(bubble.measured_s, 9e-3, 1e-9);
  EXPECT_NEAR(bubble.measured_of_computing, 3.0 / 8, 1e-9);
  EXPECT_NEAR(bubble.expected_of_computing, 3.0 / 8, 1e-9);
  ASSERT_EQ(bubble.by_stage.size(), 4U);
  for (const StageBubble& stage : bubble.by_stage) {
    EXPECT_EQ(stage.rank_steps, 4U * 3);
    EXPECT_NEAR(stage.window_s, 33e-3, 1e-9);
    EXPECT_NEAR(stage.bubble_s, 9e-3, 1e-9) << stage.stage;
  }
}

TEST(Bubble, StepsOfTheRampUpHaveFewerMicrobatches) {
  PipelineSpec spec;
  spec.mesh = {.dp = 1, .pp = 4, .tp = 1};
  spec.microbatches = 4;
  spec.pp_ns = 0;
  spec.dp_ns = 0;
  RunTrace run = play_pipeline(spec);
  run.microbatches = 16;  // those after it
  const Bubble bubble = bubble_of(run);
  EXPECT_NEAR(bubble.forward_s, 1e-3, 1e-9);
  EXPECT_NEAR(bubble.backward_s, 2e-3, 1e-9);
  EXPECT_NEAR(bubble.expected_s, 9e-3, 1e-9);
  EXPECT_NEAR(bubble.measured_s, 9e-3, 1e-9);
  EXPECT_NEAR(bubble.expected_of_computing, 3.0 / 4, 1e-9);
}

TEST(Bubble, CountsTransfersButNotWaitingAsCommunication) {
  PipelineSpec spec;
  spec.mesh = {.dp = 1, .pp = 2, .tp = 1};
  spec.microbatches = 1;
  const Bubble bubble = bubble_of(play_pipeline(spec));
  // F0, 0.1 ms, F1, B1, 0.1 ms, B0: while one computes the other one waits.
  for (const StageBubble& stage : bubble.by_stage) {
    EXPECT_NEAR(stage.window_s, 6.2e-3, 1e-9);
    EXPECT_NEAR(stage.computing_s, 3e-3, 1e-9);
    EXPECT_NEAR(stage.window_s, stage.computing_s + stage.communication_s + stage.bubble_s, 1e-12);
  }
  for (const StageBubble& stage : bubble.by_stage) {
    EXPECT_NEAR(stage.communication_s, 0.1e-3, 1e-9) << "what it receives; gradients are reduced in the drain";
    EXPECT_NEAR(stage.bubble_s, 3.1e-3, 1e-9);
  }
  EXPECT_NEAR(bubble.expected_s, 3e-3, 1e-9);
}

TEST(Bubble, ASlowStageExceedsTheFormula) {
  PipelineSpec spec;
  spec.mesh = {.dp = 1, .pp = 4, .tp = 1};
  spec.microbatches = 8;
  spec.slowness = [](int rank, int) { return rank == 3 ? 0.5 : 0.0; };
  const Bubble bubble = bubble_of(play_pipeline(spec));
  EXPECT_GT(bubble.measured_s, 1.3 * bubble.expected_s);
  EXPECT_LT(bubble.by_stage[3].bubble_s, bubble.by_stage[0].bubble_s);
}

TEST(Bubble, RecognisesTheScheduleByItsSections) {
  MadeRun made({.dp = 1, .pp = 2, .tp = 1});
  made.run.microbatches = 2;
  for (int r = 0; r < 2; ++r) {
    made.step_event(r, 0, 20'000'000);
    for (std::uint16_t mb = 0; mb < 2; ++mb) {
      const std::int64_t at = mb * 4'000'000;
      made.section(r, Kind::forward, at, at + 1'000'000, kNoDetail, mb);
      made.section(r, Kind::backward_input, at + 1'000'000, at + 2'000'000, kNoDetail, mb);
      made.section(r, Kind::backward_weight, at + 2'000'000, at + 3'000'000, kNoDetail, mb);
    }
  }
  const Bubble bubble = bubble_of(made.run);
  ASSERT_EQ(bubble.unknown, "");
  EXPECT_EQ(bubble.schedule->name, "zb-h1");
  EXPECT_NEAR(bubble.backward_s, 2e-3, 1e-9);
  EXPECT_NEAR(bubble.expected_s, 1e-3, 1e-9) << "(p - 1)(t_f + t_i) - (min(p, m) - 1) t_w";
  EXPECT_NEAR(bubble.measured_s, 1e-3, 1e-9);

  MadeRun chunked({.dp = 1, .pp = 2, .tp = 1});
  chunked.run.microbatches = 4;
  for (int r = 0; r < 2; ++r) {
    chunked.step_event(r, 0, 20'000'000);
    for (int chunk = 0; chunk < 2; ++chunk) {
      const std::int64_t at = chunk * 8'000'000;
      const std::uint32_t forward = chunked.info(Kind::forward, Purpose::none, -1, -1, chunk);
      const std::uint32_t backward = chunked.info(Kind::backward, Purpose::none, -1, -1, chunk);
      for (std::uint16_t mb = 0; mb < 4; ++mb) {
        chunked.add(r, forward, {at + mb * 500'000, at + mb * 500'000 + 500'000, kNoDetail, mb, State::ended});
        chunked.add(r, backward,
                    {at + 2'000'000 + mb * 1'000'000, at + 3'000'000 + mb * 1'000'000, kNoDetail, mb, State::ended});
      }
    }
  }
  const Bubble interleaved = bubble_of(chunked.run);
  EXPECT_EQ(interleaved.schedule->name, "interleaved");
  EXPECT_EQ(interleaved.chunks, 2);
  EXPECT_NEAR(interleaved.forward_s, 1e-3, 1e-9) << "of a full stage";
  EXPECT_NEAR(interleaved.expected_s, 1.5e-3, 1e-9);
}

TEST(Bubble, SaysWhyThereIsNoBubble) {
  PipelineSpec spec;
  spec.mesh = {.dp = 2, .pp = 1, .tp = 1};
  EXPECT_EQ(bubble_of(play_pipeline(spec)).unknown, "one stage");
  spec.mesh = {.dp = 1, .pp = 2, .tp = 1};
  RunTrace run = play_pipeline(spec);
  run.microbatches = 0;
  EXPECT_EQ(bubble_of(run).unknown, "the number of microbatches is not known");
  run.ranks.pop_back();
  EXPECT_EQ(bubble_of(run).unknown, "of no pipeline all stages were traced");
  run.has_mesh = false;
  EXPECT_EQ(bubble_of(run).unknown, "the mesh is not known");
}

}  // namespace
}  // namespace ms::tracepp
