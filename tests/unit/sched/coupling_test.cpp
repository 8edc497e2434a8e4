// Sends and receives decoupled from compute against executors that overlap nothing: no deadlock in either, and
// decoupling pays. That every generated schedule runs coupled: generate_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "edit.h"
#include "sched/checker.h"
#include "sched/csv.h"

namespace ms::sched {
namespace {

using testing::HasSubstr;

constexpr Options kCoupled{.early_receives = false};

// Two neighbours that send to each other, each before it receives, wait for ever; a receive on one side breaks it.
TEST(Coupling, AnExchangeNeedsItsReceiveFirst) {
  const Shape shape{.pp = 2, .chunks = 1, .microbatches = 2};
  constexpr std::string_view kLast = "G0,RF0.0,F0.0,B0.0,SB0.0,RF0.1,F0.1,B0.1,SB0.1,D0\n";
  const Schedule bad =
      parse_csv("G0,F0.0,SF0.0,F0.1,SF0.1,RB0.0,B0.0,RB0.1,B0.1,D0\n" + std::string(kLast), "test", shape);
  EXPECT_TRUE(check(bad).ok) << "on streams of their own both sends are under way";
  const Report report = check(bad, {}, Coupling::coupled);
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.problem, HasSubstr("deadlock: rank 0 row 6 (B0.0) waits for row 5 (RB0.0)"));
  const Schedule good =
      parse_csv("G0,F0.0,SF0.0,F0.1,RB0.0,SF0.1,B0.0,RB0.1,B0.1,D0\n" + std::string(kLast), "test", shape);
  EXPECT_TRUE(check(good, {}, Coupling::coupled).ok) << check(good, {}, Coupling::coupled).problem;
}

// A send that the peer needs first, below the computation that needs the peer.
TEST(Coupling, ARowMayBeIssuedLate) {
  const Shape shape{.pp = 2, .chunks = 1, .microbatches = 2};
  constexpr std::string_view kLast = "G0,RF0.0,RF0.1,F0.0,B0.0,SB0.0,F0.1,B0.1,SB0.1,D0\n";
  const auto with = [&](const char* first) { return check(parse_csv(first + std::string(kLast), "test", shape)); };
  const Report good = with("G0,F0.0,SF0.0,F0.1,SF0.1,RB0.0,B0.0,RB0.1,B0.1,D0\n");
  EXPECT_TRUE(good.ok) << good.problem;
  const Report bad = with("G0,F0.0,F0.1,RB0.0,B0.0,SF0.0,SF0.1,RB0.1,B0.1,D0\n");
  EXPECT_FALSE(bad.ok);
  EXPECT_THAT(bad.problem, HasSubstr("deadlock: rank 0 row 4 (B0.0)"));
  EXPECT_THAT(bad.problem, HasSubstr("a send belongs right below"));
}

TEST(Coupling, EarlyReceivesAreNotForCoupledExecutors) {
  for (const Schedule& schedule : {gpipe(3, 4), one_f_one_b(3, 4), zero_bubble_h1(3, 4), interleaved(2, 2, 4)}) {
    const Report report = check(schedule, {}, Coupling::coupled);
    EXPECT_FALSE(report.ok);
    EXPECT_THAT(report.problem, HasSubstr("deadlock"));
  }
}

TEST(Coupling, RequireSoundAsksForTheExecutorsWay) {
  EXPECT_NO_THROW(require_sound(one_f_one_b(2, 4), "mine"));
  try {
    require_sound(one_f_one_b(2, 4), "mine.csv", Coupling::coupled);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "sched.invalid");
    EXPECT_THAT(error.message(), HasSubstr("the schedule mine.csv cannot run: deadlock"));
    EXPECT_THAT(error.hint(), HasSubstr("overlap.pp = true"));
  }
  EXPECT_NO_THROW(require_sound(one_f_one_b(2, 4, kCoupled), "mine", Coupling::coupled));
}

double time(const Schedule& schedule, const Times& times, Coupling coupling) {
  const Report report = check(schedule, times, coupling);
  EXPECT_TRUE(report.ok) << report.problem;
  return report.makespan;
}

// Warm-up: a forward waits only for its own receive, so a rank computes on while it sends; cool-down is the mirror. So
// in GPipe, which is nothing else, a transfer costs its time once for each stage that the first microbatch or the last
// gradient goes through, and not once for each microbatch. Coupled, every microbatch pays for it.
TEST(Coupling, InWarmUpAndCoolDownAComputationWaitsOnlyForItsOwnReceive) {
  for (const int p : {2, 3, 5}) {
    for (const int m : {2, 4, 9}) {
      for (const double transfer : {0.25, 1.0, 2.0}) {
        const Times times{.forward = 2, .backward = 4, .transfer = transfer};
        const double hidden = m * 6.0 + (p - 1) * (6.0 + 2 * transfer);
        EXPECT_DOUBLE_EQ(time(gpipe(p, m), times, Coupling::decoupled), hidden) << "p " << p << " m " << m;
        EXPECT_GE(time(gpipe(p, m, kCoupled), times, Coupling::coupled), hidden + 2 * (m - 1) * transfer);
      }
    }
  }
}

TEST(Coupling, DecoupledIsFasterWhereTransfersTakeTime) {
  struct Case {
    const char* name;
    std::function<Schedule(Options)> make;
  };
  const Case cases[] = {
      {"gpipe", [](Options o) { return gpipe(4, 8, o); }},
      {"1f1b", [](Options o) { return one_f_one_b(4, 8, o); }},
      {"1f1b of two", [](Options o) { return one_f_one_b(2, 8, o); }},
      {"zb-h1", [](Options o) { return zero_bubble_h1(4, 8, o); }},
      {"interleaved", [](Options o) { return interleaved(4, 2, 8, o); }},
      {"interleaved, 3 chunks", [](Options o) { return interleaved(2, 3, 8, o); }},
      {"forward only", [](Options o) { return forward_only(4, 2, 8, o); }},
  };
  for (const Case& c : cases) {
    const Schedule decoupled = c.make({}), coupled = c.make(kCoupled);
    for (const double transfer : {0.05, 0.25, 0.5, 1.0}) {
      const Times times{.forward = 1, .backward = 2, .transfer = transfer};
      const double with = time(decoupled, times, Coupling::decoupled),
                   without = time(coupled, times, Coupling::coupled);
      EXPECT_LT(with, without) << c.name << ", transfer " << transfer;
    }
  }
}

}  // namespace
}  // namespace ms::sched
