// Batches that grow: the stages of a ramp-up, and where each step begins.
#include "data/batch.h"

#include <gtest/gtest.h>

namespace ms::data {
namespace {

TEST(BatchRampUp, Stages) {
  struct Case {
    std::int64_t start, increment, samples, global_batch;
    std::vector<RampStage> stages;
  };
  const Case cases[] = {
      {0, 0, 0, 8, {}},
      {4, 4, 12, 8, {{4, 3}}},
      {4, 4, 13, 8, {{4, 4}}},                    // a stage ends with the step that reaches its part
      {4, 4, 60, 16, {{4, 5}, {8, 3}, {12, 2}}},  // at 20, 44 and 68 samples
      {2, 2, 4, 16, {{2, 1}, {8, 1}}},            // parts of less than a step: sizes are passed over
      {32, 32, 3200, 96, {{32, 50}, {64, 25}}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ramp_up(c.start, c.increment, c.samples, c.global_batch), c.stages)
        << c.start << " + " << c.increment << " over " << c.samples << " to " << c.global_batch;
  }
}

TEST(BatchRampUp, StepsFollowEachOtherWithoutAGap) {
  const BatchShape shape{.seq = 8, .global_batch = 16, .ramp = ramp_up(4, 4, 60, 16)};
  EXPECT_EQ(shape.ramp_steps(), 10);
  std::int64_t samples = 0;
  for (std::int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(shape.samples_before(step), samples) << "step " << step;
    samples += shape.batch(step);
  }
  EXPECT_EQ(shape.batch(0), 4);
  EXPECT_EQ(shape.batch(9), 12);
  EXPECT_EQ(shape.batch(10), 16);
  EXPECT_EQ(samples, 68 + 10 * 16);
  // Resumed at step 7, where another batch size had come to sample 100.
  BatchShape resumed = shape;
  resumed.origin_step = 7, resumed.origin_sample = 100;
  EXPECT_EQ(resumed.first_sample(7), 100);
  EXPECT_EQ(resumed.first_sample(8), 108);
  EXPECT_EQ(resumed.first_sample(11), 108 + 12 + 12 + 16);
}

TEST(Batch, SkippedSamplesAreTheSameFromEveryStep) {
  const BatchShape plain{.seq = 4, .global_batch = 16, .ramp = {{4, 3}, {8, 4}, {12, 3}}};
  BatchShape whole = plain;
  whole.skips = {{.step = 5, .begin = plain.first_sample(5), .end = plain.first_sample(8)}};
  const std::int64_t second = whole.first_sample(12);
  whole.skips.push_back({.step = 12, .begin = second, .end = second + 48});
  EXPECT_EQ(whole.first_sample(4), plain.first_sample(4));
  EXPECT_EQ(whole.first_sample(5), plain.first_sample(8));
  EXPECT_EQ(whole.first_sample(13), second + 48 + 16);
  for (std::int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(whole.first_sample(step), plain.first_sample(step) + whole.skipped_before(step)) << step;
    // A checkpoint of a step tells where the step before it has ended.
    BatchShape resumed = whole;
    resumed.origin_step = step;
    resumed.origin_sample = step == 0 ? 0 : whole.first_sample(step - 1) + whole.batch(step - 1);
    for (std::int64_t other = 0; other < 20; ++other) {
      EXPECT_EQ(resumed.first_sample(other), whole.first_sample(other)) << other << " from " << step;
    }
  }
}

}  // namespace
}  // namespace ms::data
