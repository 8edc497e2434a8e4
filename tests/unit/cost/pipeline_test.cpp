// The closed pipeline formulas against the quoted figures. That real schedules agree with them: tests/unit/sched.
#include "cost/pipeline.h"

#include <gtest/gtest.h>

#include <vector>

namespace ms::cost {
namespace {

struct Case {
  int p, m, v;
  double makespan, bubble;
  std::vector<int> warm_up;
  std::vector<double> peak_stages;
};

TEST(Pipeline, QuotedFigures) {
  const Case cases[] = {
      {4, 8, 2, 28.5, 0.1875, {10, 8, 6, 4}, {5.5, 4.5, 3.5, 2.5}},
      {8, 32, 2, 106.5, 0.109375, {22, 20, 18, 16, 14, 12, 10, 8}, {}},
      {8, 24, 6, 75.5, 7.0 / 144, {54, 52, 50, 48, 46, 44, 42, 40}, {}},
  };
  for (const Case& c : cases) {
    EXPECT_DOUBLE_EQ(pipeline_makespan(c.p, c.m, c.v, 1, 2), c.makespan);
    EXPECT_DOUBLE_EQ(bubble_of_ideal(c.p, c.m, c.v), c.bubble);
    EXPECT_DOUBLE_EQ(bubble_of_total(c.p, c.m, c.v), 1 - c.m * 3.0 / c.makespan);
    for (int r = 0; r < c.p; ++r) {
      EXPECT_EQ(warm_up_interleaved(c.p, c.m, c.v, c.p, r), c.warm_up[static_cast<std::size_t>(r)]);
      const double peak = static_cast<double>(peak_chunks_interleaved(c.p, c.m, c.v, c.p, r)) / c.v;
      if (!c.peak_stages.empty()) { EXPECT_EQ(peak, c.peak_stages[static_cast<std::size_t>(r)]); }
    }
    // Megatron's memory factor: p (1 + (p - 1) / (p v)) on the first rank.
    EXPECT_DOUBLE_EQ(static_cast<double>(peak_chunks_interleaved(c.p, c.m, c.v, c.p, 0)) / c.v,
                     c.p * (1 + (c.p - 1.0) / (c.p * c.v)));
  }
  EXPECT_NEAR(bubble_of_ideal(8, 24, 6), 0.048611, 5e-7);
}

TEST(Pipeline, PlainForms) {
  EXPECT_EQ(pipeline_makespan(4, 8, 1, 1, 2), 33);
  EXPECT_EQ(bubble_of_ideal(4, 8, 1), 0.375);
  EXPECT_EQ(bubble_of_ideal(1, 8, 1), 0);
  EXPECT_EQ(warm_up_1f1b(4, 8, 0), 3);
  EXPECT_EQ(warm_up_1f1b(4, 2, 0), 2);
  EXPECT_EQ(peak_chunks_1f1b(4, 8, 1), 3);
  EXPECT_EQ(peak_chunks_1f1b(4, 2, 1), 2);
  EXPECT_EQ(peak_chunks_gpipe(8), 8);
  EXPECT_EQ(warm_up_interleaved(4, 4, 2, 4, 0), 8) << "all forwards first";
  EXPECT_EQ(peak_chunks_interleaved(4, 4, 2, 4, 0), 8);
}

// With three equal times a third of 1F1B's bubble, as the paper has it; two thirds of the time is saved however many
// microbatches there are, once they are as many as ranks.
TEST(Pipeline, ZeroBubble) {
  for (const int p : {1, 2, 4, 8}) {
    EXPECT_EQ(bubble_zb_h1(p, p, 1, 1, 1), p - 1);
    EXPECT_EQ(bubble_zb_h1(p, 4 * p, 1, 1, 1), p - 1);
    EXPECT_EQ(bubble_zb_h1(p, 4 * p, 3, 3, 2), (p - 1) * (3 + 3 - 2));
    EXPECT_EQ(bubble_zb_h1(p, 1, 1, 1, 1), 2 * (p - 1)) << "one microbatch: no weight half fills anything";
    EXPECT_EQ(3 * bubble_zb_h1(p, p, 1, 1, 1), pipeline_makespan(p, p, 1, 1, 2) - p * 3);
  }
  EXPECT_EQ(peak_chunks_zb_h1(4, 8), 4);
  EXPECT_EQ(peak_chunks_zb_h1(4, 3), 3);
}

}  // namespace
}  // namespace ms::cost
