#include "driver/time_spent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace ms::driver {
namespace {

AttemptEntry entry_of(std::int64_t from, std::int64_t to, double began_s, double first_step_s, double ended_s) {
  AttemptEntry entry;
  entry.from_step = from;
  entry.to_step = to;
  entry.began_s = began_s;
  entry.first_step_s = first_step_s;
  entry.ended_s = ended_s;
  return entry;
}

TEST(TimeSpent, IsOfOneKindEach) {
  Ledger ledger;
  ledger.began_s = 990;
  // 10 s of checks; 10 s of start and 40 s of steps, 30 s of them kept, 4 s lost to a slow node; 3 s until an alarm, 2
  // s until the end, 10 s until the next attempt; 10 s of start; 35 s of steps; then the run has another size.
  ledger.attempts = {entry_of(0, 40, 1000, 1010, 1055), entry_of(30, 65, 1065, 1075, 1110),
                     entry_of(65, -1, 1120, 0, 1130)};
  ledger.attempts[0].detect_s = 3;
  ledger.attempts[0].alarm_s = 1053;
  ledger.attempts[0].slow_s = 4;
  ledger.attempts[1].cause = kResizesCause;
  const TimeSpent spent = time_spent(ledger, 1130);
  EXPECT_THAT(spent.seconds, testing::ElementsAre(26 + 35, 10, 10 + 10, 10, 5 + 10, 4, 10, 10));
  // While evidence is taken, and in a run that tells no steps.
  ledger.attempts = {entry_of(0, 40, 1000, 1010, 0)};
  ledger.attempts[0].detect_s = 3;
  ledger.attempts[0].alarm_s = 1053;
  EXPECT_THAT(time_spent(ledger, 1060).seconds, testing::ElementsAre(40, 10, 10, 0, 10, 0, 0, 0));
  ledger.attempts[0].from_step = ledger.attempts[0].to_step = -1;
  EXPECT_THAT(time_spent(ledger, 1060).seconds, testing::ElementsAre(0, 10, 0, 0, 10, 0, 0, 50));
}

TEST(TimeSpent, AddsUpToTheWallClock) {
  std::mt19937 random(1);
  const auto one_of = [&](double least, double most) { return std::uniform_real_distribution(least, most)(random); };
  for (int run = 0; run < 200; ++run) {
    Ledger ledger;
    ledger.began_s = 1000;
    double at_s = 1000;
    for (int i = 0; i < run % 20;
         ++i) {  // a driver that was killed, and clocks that were set, leave times out of order
      const double began_s = at_s + one_of(-5, 60), first_s = began_s + one_of(0, 30),
                   ended_s = first_s + one_of(-3, 900);
      const auto from = static_cast<std::int64_t>(one_of(-1, 50));
      ledger.attempts.push_back(entry_of(from, from + static_cast<std::int64_t>(one_of(0, 90)), began_s,
                                         one_of(0, 1) < 0.3 ? 0 : first_s, ended_s));
      ledger.attempts.back().detect_s = one_of(0, 40);
      ledger.attempts.back().slow_s = one_of(0, 40);
      if (one_of(0, 1) < 0.5) ledger.attempts.back().alarm_s = ended_s + one_of(-40, 5);
      at_s = ended_s;
    }
    const double now_s = std::max(at_s + one_of(-10, 100), 1000.0);
    const TimeSpent spent = time_spent(ledger, now_s);
    double all_s = 0;
    for (const double kind_s : spent.seconds) {
      EXPECT_GE(kind_s, -1e-9);
      all_s += kind_s;
    }
    EXPECT_NEAR(all_s, now_s - 1000, 1e-6);
  }
}

}  // namespace
}  // namespace ms::driver
