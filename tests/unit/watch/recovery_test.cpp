#include "watch/recovery.h"

#include <gtest/gtest.h>

namespace ms::watch {
namespace {

constexpr double kHour_s = 3600;

TEST(Recovery, AnswersASlowNodeByWhatCostsLess) {
  struct Row {
    const char* what;
    SlowNodes slow;
    SlowAction action;
  };
  const Row rows[] = {
      {"a spare is ready", {.spares = 1, .times = 2}, SlowAction::replace},
      {"no spare, and no queue", {.times = 2}, SlowAction::stay},
      {"no spare, a queue that costs less", {.times = 2, .queue_wait_s = kQueueWait_s}, SlowAction::requeue},
      {"no spare, a queue that costs more", {.times = 2, .queue_wait_s = 7 * kHour_s}, SlowAction::stay},
      {"a spare before the queue", {.spares = 1, .times = 2, .queue_wait_s = 0}, SlowAction::replace},
      {"well again before the restart ends", {.spares = 1, .times = 2, .lasts_s = 200}, SlowAction::stay},
      {"the run ends before", {.spares = 1, .times = 2, .left_s = 200}, SlowAction::stay},
      {"the run ends later", {.spares = 1, .times = 2, .left_s = 300}, SlowAction::replace},
      {"slower by 10 %", {.spares = 1, .times = 1.1, .lasts_s = 1400}, SlowAction::replace},
      {"slower by 10 %, not for long", {.spares = 1, .times = 1.1, .lasts_s = 1300}, SlowAction::stay},
      {"a fault ends the attempt soon", {.spares = 1, .times = 2, .faults_per_s = 1.0 / 200}, SlowAction::stay},
      {"a fault brings no spare", {.times = 2, .faults_per_s = 1.0 / 200, .queue_wait_s = 0}, SlowAction::requeue},
      {"one spare for two of them", {.nodes = 2, .spares = 1, .times = 2}, SlowAction::stay},
      {"two spares for two of them", {.nodes = 2, .spares = 2, .times = 2}, SlowAction::replace},
      {"one spare, the queue has the other",
       {.nodes = 2, .spares = 1, .times = 2, .queue_wait_s = kQueueWait_s},
       SlowAction::requeue},
      {"nothing is slow", {.spares = 1, .times = 1}, SlowAction::stay},
      {"it is over at once", {.spares = 1, .times = 2, .lasts_s = 0}, SlowAction::stay},
      {"the run is over", {.spares = 1, .times = 2, .left_s = 0}, SlowAction::stay},
  };
  for (const Row& row : rows) {
    const SlowAnswer answer = answer_slow(row.slow);
    EXPECT_EQ(answer.action, row.action) << row.what << ": " << answer.why;
    EXPECT_FALSE(answer.why.empty()) << row.what;
  }
}

// The more spares, the longer the slowness, the worse it is: never the less is done.
TEST(Recovery, ReplacesTheMoreTheMoreItGains) {
  for (const double lasts_s : {100.0, kHour_s, 100 * kHour_s}) {
    for (const double times : {1.05, 1.5, 4.0}) {
      SlowNodes slow{.nodes = 2, .spares = 2, .times = times, .lasts_s = lasts_s};
      if (answer_slow(slow).action != SlowAction::replace) continue;
      slow.spares = 3;
      EXPECT_EQ(answer_slow(slow).action, SlowAction::replace);
      slow.lasts_s *= 2;
      EXPECT_EQ(answer_slow(slow).action, SlowAction::replace);
      slow.times *= 2;
      EXPECT_EQ(answer_slow(slow).action, SlowAction::replace);
    }
  }
}

}  // namespace
}  // namespace ms::watch
