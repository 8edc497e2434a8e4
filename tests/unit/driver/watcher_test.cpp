#include "driver/watcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ms::driver {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RankState at(int rank, std::int64_t step, const std::string& section = "step", double section_s = 0) {
  RankState state;
  state.rank = rank;
  state.step = step;
  state.section = section;
  state.section_s = section_s;
  state.state = 'S';
  return state;
}

// Two nodes of one rank, steps of 0.2 s, reports every 0.1 s.
class Watching : public testing::Test {
 protected:
  void train_until(double end_s) {
    for (; now_s_ < end_s; now_s_ += 0.1) {
      report("n1", 0);
      report("n2", 1);
      ASSERT_FALSE(watcher_.check(now_s_, replaceable_)) << now_s_;
    }
    stopped_s_ = now_s_;
  }
  void report(const std::string& node, int rank, bool alive = true) {
    const auto step = static_cast<std::int64_t>(std::min(now_s_, stopped_s_) / 0.2);
    RankState state = at(rank, step, "step", now_s_ - static_cast<double>(step) * 0.2);
    state.alive = alive;
    watcher_.report(node, {.number = 0, .attempt = 1, .ranks = {state}, .took = {{"step", 0.2}}}, now_s_);
  }
  // Time passes, and these nodes report that nothing goes on.
  std::optional<Alarm> stall(double seconds, const std::vector<std::string>& heard,
                             const std::vector<std::string>& answer = {}) {
    for (const double end_s = now_s_ + seconds; now_s_ < end_s; now_s_ += 0.1) {
      for (const std::string& node : heard) report(node, node == "n1" ? 0 : 1);
      for (const std::string& node : answer) watcher_.answered(node, now_s_);
      if (std::optional<Alarm> alarm = watcher_.check(now_s_, replaceable_)) return alarm;
    }
    return std::nullopt;
  }

  bool replaceable_ = true;
  double now_s_ = 0, stopped_s_ = 1e9;
  watch::Deadlines deadlines_{WatchLimits{}.hang_s};
  Watcher watcher_{1, {"n1", "n2"}, WatchLimits{}, deadlines_, 0};
};

TEST_F(Watching, UndisturbedStepsAreNoAlarm) {
  train_until(60);
  EXPECT_EQ(watcher_.steps(), 299);
}

TEST_F(Watching, NobodyGetsOnIsAHangByTheLearnedDeadline) {
  train_until(20);
  const std::optional<Alarm> alarm = stall(30, {"n1", "n2"});
  ASSERT_TRUE(alarm);
  EXPECT_EQ(alarm->kind, AlarmKind::hang);
  EXPECT_LT(now_s_ - 20, 3 * 0.2 + 5 + 0.5);
  EXPECT_NEAR(alarm->fault_s, 20, 0.3);
}

TEST_F(Watching, AHangShowsASecondBefore) {
  train_until(20);
  EXPECT_FALSE(watcher_.nearly_hangs(now_s_));
  const double deadline_s = watcher_.deadline_s(now_s_);
  EXPECT_FALSE(stall(deadline_s - 1.5, {"n1", "n2"}));
  EXPECT_FALSE(watcher_.nearly_hangs(now_s_));
  EXPECT_FALSE(stall(1, {"n1", "n2"}));
  EXPECT_TRUE(watcher_.nearly_hangs(now_s_));
  stopped_s_ = 1e9;
  report("n1", 0);
  EXPECT_FALSE(watcher_.nearly_hangs(now_s_)) << "it gets on";
}

// Steps that differ, of which nothing can be learned but how long they take.
TEST_F(Watching, AHangWithAProcessorForEverybodyIsOneSooner) {
  const auto deadline_s = [&](const std::vector<std::pair<char, double>>& looks) {
    watch::Deadlines deadlines(600);
    for (int i = 0; i < 10; ++i) deadlines.took("step", 0.2 + 0.05 * i);
    Watcher watcher(1, {"n1", "n2"}, WatchLimits{}, deadlines, 0);
    for (double now_s = 0; now_s < 4; now_s += 0.25) {
      const auto& [state, cpu] = looks[static_cast<std::size_t>(now_s / 0.25) % looks.size()];
      RankState waits = at(0, 7), other = at(1, 7);
      other.state = state;
      other.cpu = cpu;
      watcher.report("n1", {.number = 0, .attempt = 1, .ranks = {waits}}, now_s);
      watcher.report("n2", {.number = 0, .attempt = 1, .ranks = {other}}, now_s);
    }
    return watcher.deadline_s(3.8);
  };
  const double learned_s = 3 * 0.65, clear_s = learned_s + 4, unclear_s = learned_s + 5;
  EXPECT_DOUBLE_EQ(deadline_s({{'S', 0.0}}), clear_s) << "both wait";
  EXPECT_DOUBLE_EQ(deadline_s({{'R', 1.0}, {'R', 0.5}}), clear_s) << "one computes";
  EXPECT_DOUBLE_EQ(deadline_s({{'R', 0.15}, {'S', 0.15}}), clear_s) << "its threads do a little";
  EXPECT_DOUBLE_EQ(deadline_s({{'R', 0.4}}), unclear_s) << "it shares its processor";
  EXPECT_DOUBLE_EQ(deadline_s({{'S', 0.3}}), unclear_s) << "it computes between waits of its own";
  EXPECT_DOUBLE_EQ(deadline_s({{'R', 0.05}}), unclear_s) << "it waits for a processor";
  EXPECT_DOUBLE_EQ(deadline_s({{'D', 0.0}}), unclear_s) << "it waits for a disk";
  EXPECT_DOUBLE_EQ(deadline_s({{'R', 1.0}, {'R', 1.0}, {'R', 1.0}, {'R', 0.4}}), unclear_s) << "not long enough";
}

TEST_F(Watching, ANodeOfWhichNothingIsHeardHidesWhatItsRanksDo) {
  for (int i = 0; i < 10; ++i) deadlines_.took("step", 0.2 + 0.05 * i);
  report("n1", 0);
  report("n2", 1);
  for (; now_s_ < 3; now_s_ += 0.25) watcher_.report("n1", {.number = 0, .attempt = 1, .ranks = {at(0, 0)}}, now_s_);
  EXPECT_DOUBLE_EQ(watcher_.deadline_s(now_s_), 3 * 0.65 + 5);
}

TEST_F(Watching, ARankThatASignalHasStoppedIsAHangSooner) {
  train_until(20);
  const auto says = [&](char state, double section_s) {
    RankState rank = at(1, 99, "step", section_s);
    rank.state = state;
    watcher_.report("n2", {.number = 0, .attempt = 1, .ranks = {rank}}, now_s_);
  };
  for (const double end_s = now_s_ + 2; now_s_ < end_s; now_s_ += 0.1) {
    report("n1", 0);
    says('T', now_s_ - 20);
    ASSERT_FALSE(watcher_.check(now_s_, replaceable_)) << now_s_;
  }
  now_s_ += 1;
  report("n1", 0);
  says('S', now_s_ - 20);
  EXPECT_FALSE(watcher_.check(now_s_, replaceable_)) << "it goes on";
  says('T', now_s_ - 20);
  const std::optional<Alarm> alarm = watcher_.check(now_s_, replaceable_);
  ASSERT_TRUE(alarm);
  EXPECT_EQ(alarm->kind, AlarmKind::hang);
}

TEST_F(Watching, BeforeItHasLearnedTheConfiguredDeadlineHolds) {
  watcher_.report("n1", {.number = 0, .attempt = 1, .ranks = {at(0, -1, "load")}}, 0);
  for (double now_s = 0; now_s < 599; now_s += 1) {
    for (const char* node : {"n1", "n2"}) watcher_.report(node, {.number = 0, .attempt = 1, .ranks = {}}, now_s);
    ASSERT_FALSE(watcher_.check(now_s, replaceable_)) << now_s;
  }
  EXPECT_TRUE(watcher_.check(601, replaceable_));
}

TEST_F(Watching, ANodeThatAnsweredOnceAndIsSilentNowIsLost) {
  watcher_.answered("n2", 0);
  train_until(20);
  watcher_.answered("n2", 20);
  const std::optional<Alarm> alarm = stall(30, {"n1"});
  ASSERT_TRUE(alarm);
  EXPECT_EQ(alarm->kind, AlarmKind::node_lost);
  EXPECT_THAT(alarm->nodes, ElementsAre("n2"));
  EXPECT_THAT(alarm->ranks, ElementsAre(1));
  EXPECT_LT(now_s_ - 20, 2);
}

TEST_F(Watching, ASilenceThatIsShorterThanAStepIsNoLostNode) {
  watcher_.answered("n2", 0);
  for (int step = 0; step < 6; ++step) {  // steps of 6 s: a network that is away for 5 s in one of them hurts nobody
    for (int i = 0; i < 60; ++i, now_s_ += 0.1) {
      const bool cut = step == 5 && i >= 5 && i < 55;
      for (const auto& [node, rank] : {std::pair{"n1", 0}, std::pair{"n2", 1}}) {
        if (cut && rank == 1) continue;
        const std::map<std::string, double> took =
            i == 0 && step > 0 ? std::map<std::string, double>{{"step", 6}} : std::map<std::string, double>{};
        watcher_.report(node, {.number = 0, .attempt = 1, .ranks = {at(rank, step, "step", 0.1 * i)}, .took = took},
                        now_s_);
        if (rank == 1) watcher_.answered(node, now_s_);
      }
      ASSERT_FALSE(watcher_.check(now_s_, replaceable_)) << now_s_;
    }
  }
}

// Paused by its hypervisor, maybe: to end the run gains nothing.
TEST_F(Watching, WithoutASpareASilentNodeHasAMinute) {
  replaceable_ = false;
  watcher_.answered("n2", 0);
  train_until(20);
  EXPECT_FALSE(stall(50, {"n1"}));
  stopped_s_ = 1e9;
  train_until(80);
  const std::optional<Alarm> alarm = stall(100, {"n1"});
  ASSERT_TRUE(alarm);
  EXPECT_EQ(alarm->kind, AlarmKind::node_lost);
  EXPECT_LT(now_s_ - 80, WatchLimits{}.node_s + 1);
}

TEST_F(Watching, AfterASilenceTheNetworkMayNeedAsLongAgain) {
  replaceable_ = false;
  watcher_.answered("n2", 0);
  train_until(20);
  EXPECT_FALSE(stall(20, {"n1"}));
  EXPECT_FALSE(stall(18, {"n1", "n2"}));
  const std::optional<Alarm> alarm = stall(10, {"n1", "n2"});
  ASSERT_TRUE(alarm);
  EXPECT_EQ(alarm->kind, AlarmKind::hang);
}

TEST_F(Watching, OfRanksWithoutHeartbeatsSilenceSaysLess) {
  const auto silent = [&](double until_s) {
    std::optional<Alarm> alarm;
    for (; now_s_ < until_s && !alarm; now_s_ += 0.1) {
      watcher_.report("n1", {.number = 0, .attempt = 1, .ranks = {}}, now_s_);
      alarm = watcher_.check(now_s_, replaceable_);
    }
    return alarm;
  };
  watcher_.answered("n2", 0);
  EXPECT_FALSE(silent(30));
  watcher_.closed("n2");
  const std::optional<Alarm> alarm = silent(60);
  ASSERT_TRUE(alarm);
  EXPECT_THAT(alarm->nodes, ElementsAre("n2"));
  EXPECT_LT(now_s_, 31);
}

TEST_F(Watching, ANodeThatNeverAnsweredGetsMoreTime) {
  train_until(20);
  EXPECT_FALSE(stall(4, {"n1"}));
}

TEST_F(Watching, AnAgentThatIsGoneIsNoLostNodeWhileStepsEnd) {
  watcher_.answered("n2", 0);
  for (; now_s_ < 60; now_s_ += 0.1) {
    report("n1", 0);
    ASSERT_FALSE(watcher_.check(now_s_, replaceable_)) << now_s_;
  }
}

TEST_F(Watching, AnAgentThatIsGoneIsNoLostNodeWhileTheKernelAnswers) {
  train_until(20);
  const std::optional<Alarm> alarm = stall(30, {"n1"}, {"n2"});
  ASSERT_TRUE(alarm);
  EXPECT_EQ(alarm->kind, AlarmKind::hang);
}

TEST_F(Watching, ALoopThatNamesNoSectionsGetsMoreTime) {
  const auto loop = [&](std::int64_t step) {
    const Report report{.number = 0, .attempt = 1, .ranks = {at(0, step, "loop")}, .took = {{"loop", 0.2}}};
    watcher_.report("n1", report, 0.2 * static_cast<double>(step));
    watcher_.report("n2", {.number = 0, .attempt = 1, .ranks = {}}, 0.2 * static_cast<double>(step));
  };
  for (std::int64_t step = 0; step < 100; ++step) loop(step);
  EXPECT_EQ(watcher_.deadline_s(20), WatchLimits{}.unnamed_s);
  RankState stopped = at(0, 99, "loop");
  stopped.state = 'T';
  watcher_.report("n1", {.number = 0, .attempt = 1, .ranks = {stopped}}, 20);
  EXPECT_LT(watcher_.deadline_s(20), 10) << "a rank that a signal has stopped does nothing that takes long";
  loop(99);
  EXPECT_EQ(watcher_.deadline_s(20), WatchLimits{}.unnamed_s);
  deadlines_.took("loop", 40);
  EXPECT_GT(watcher_.deadline_s(20), 100) << "as long as it was seen to take";
}

TEST(WatchLimits, DeadlinesCountInReportsWhichGrowRarerWithTheNodes) {
  EXPECT_EQ(report_every_s(4), 0.25);
  EXPECT_EQ(report_every_s(2000), 0.25);
  EXPECT_NEAR(report_every_s(12288), 1.536, 1e-9);
  WatchLimits limits{.every_s = report_every_s(12288)};
  watch::Deadlines deadlines(limits.hang_s);
  Watcher watcher(1, {"n1", "n2"}, limits, deadlines, 0);
  for (const char* node : {"n1", "n2"}) watcher.answered(node, 0);
  double now_s = 0;
  // Reports that come as seldom as they may are no alarm.
  for (; now_s < 20; now_s += limits.every_s) {
    for (const char* node : {"n1", "n2"}) watcher.report(node, {.number = 0, .attempt = 1, .ranks = {}}, now_s);
    ASSERT_FALSE(watcher.check(now_s, true)) << now_s;
    ASSERT_THAT(watcher.unasked_or_silent(limits.ask_s(), now_s + limits.every_s), IsEmpty());
  }
  watcher.closed("n2");
  watcher.report("n1", {.number = 0, .attempt = 1, .ranks = {}}, now_s + 2.5);
  EXPECT_THAT(watcher.unasked_or_silent(limits.ask_s(), now_s + 2.5), ElementsAre("n2"));
  EXPECT_FALSE(watcher.check(now_s + 2.5, true));
  const std::optional<Alarm> alarm = watcher.check(now_s + 3, true);
  ASSERT_TRUE(alarm);
  EXPECT_THAT(alarm->nodes, ElementsAre("n2"));
}

TEST_F(Watching, ADriverThatWasAwayHeardNobodyAndSaysNothingOfThem) {
  watcher_.answered("n2", 0);
  train_until(20);
  watcher_.answered("n2", 20);
  now_s_ += 30;
  watcher_.was_away(30);
  EXPECT_FALSE(watcher_.check(now_s_, replaceable_));
}

// A driver that gets a processor for a moment every three seconds.
TEST_F(Watching, ADriverThatIsAwayAgainAndAgainMissesNobodyForEver) {
  for (const char* node : {"n1", "n2"}) watcher_.answered(node, 0);
  train_until(20);
  const auto look = [&](const std::vector<std::string>& answer) {
    now_s_ += 3;
    watcher_.was_away(2.9);
    report("n1", 0);
    for (const std::string& node : answer) watcher_.answered(node, now_s_);
    return watcher_.check(now_s_, replaceable_);
  };
  watcher_.was_away(3600);  // a machine that slept, once
  now_s_ += 3600;
  std::optional<Alarm> alarm;
  while (!(alarm = look({})) && now_s_ < 4000) {}
  ASSERT_TRUE(alarm);
  EXPECT_EQ(alarm->kind, AlarmKind::node_lost);
  EXPECT_THAT(alarm->nodes, ElementsAre("n2"));
  EXPECT_LT(now_s_ - 3620, 10) << "its silence was forgiven before";
}

TEST_F(Watching, AStarvedDriverDelaysAnAlarmByWhatIsForgivenAndGivesNone) {
  for (const char* node : {"n1", "n2"}) watcher_.answered(node, 0);
  train_until(20);
  const auto look = [&](const std::vector<std::string>& heard) {
    now_s_ += 3;
    watcher_.was_away(2.9);
    for (const std::string& node : heard) report(node, node == "n1" ? 0 : 1);
    return watcher_.check(now_s_, replaceable_);
  };
  stopped_s_ = 1e9;
  for (int i = 0; i < 200; ++i) ASSERT_FALSE(look({"n1", "n2"})) << "it trains, slowly";
  stopped_s_ = now_s_;
  const double lost_s = now_s_;
  std::optional<Alarm> alarm;
  while (!(alarm = look({"n1"})) && now_s_ < lost_s + 300) {}
  ASSERT_TRUE(alarm);
  EXPECT_EQ(alarm->kind, AlarmKind::node_lost);
  EXPECT_GT(now_s_ - lost_s, 20);
  EXPECT_LT(now_s_ - lost_s, Watcher::kMostAway_s + 10);
}

TEST_F(Watching, SilenceOfAllIsTheDriversOwn) {
  watcher_.answered("n1", 0);
  watcher_.answered("n2", 0);
  train_until(20);
  now_s_ += 4;
  EXPECT_FALSE(watcher_.check(now_s_, replaceable_));
  EXPECT_THAT(watcher_.lost(now_s_), IsEmpty());
}

TEST_F(Watching, ADeadRankIsAnAlarmOnceTheOthersHadTimeToEnd) {
  train_until(20);
  report("n1", 0);
  report("n2", 1, false);
  EXPECT_FALSE(watcher_.check(now_s_, replaceable_));
  EXPECT_THAT(watcher_.first_dead(), ElementsAre("n2"));
  now_s_ += 1;
  report("n1", 0);
  report("n2", 1, false);
  const std::optional<Alarm> alarm = watcher_.check(now_s_, replaceable_);
  ASSERT_TRUE(alarm);
  EXPECT_EQ(alarm->kind, AlarmKind::rank_died);
  EXPECT_THAT(alarm->nodes, ElementsAre("n2"));
  EXPECT_NEAR(alarm->fault_s, 20, 0.2);
}

TEST_F(Watching, IsSlowLongBeforeItHangs) {
  EXPECT_FALSE(watcher_.is_slow(100)) << "what a step takes is not known";
  train_until(20);
  EXPECT_FALSE(watcher_.is_slow(22));
  EXPECT_TRUE(watcher_.is_slow(23));
  EXPECT_FALSE(watcher_.check(23, replaceable_) && watcher_.check(23, replaceable_)->kind == AlarmKind::hang);
}

TEST_F(Watching, RanksThatAreDoneMayGo) {
  for (const auto& [node, rank] : {std::pair{"n1", 0}, std::pair{"n2", 1}}) {
    RankState state = at(rank, 9, "done");
    watcher_.report(node, {.number = 0, .attempt = 1, .ranks = {state}}, 0.1);
    state.alive = false;
    watcher_.report(node, {.number = 0, .attempt = 1, .ranks = {state}}, 0.2);
  }
  EXPECT_TRUE(watcher_.ended());
  EXPECT_FALSE(watcher_.check(500, replaceable_));
  EXPECT_THAT(watcher_.first_dead(), IsEmpty());
}

TEST_F(Watching, WithoutHeartbeatsOutputIsTheSignOfLife) {
  for (double now_s = 0; now_s < 1000; now_s += 1) {
    for (const char* node : {"n1", "n2"}) watcher_.report(node, {.number = 0, .attempt = 1, .ranks = {}}, now_s);
    watcher_.output(now_s);
    ASSERT_FALSE(watcher_.check(now_s, replaceable_)) << now_s;
  }
  for (const char* node : {"n1", "n2"}) watcher_.report(node, {.number = 0, .attempt = 1, .ranks = {}}, 1601);
  const std::optional<Alarm> alarm = watcher_.check(1601, replaceable_);
  ASSERT_TRUE(alarm);
  EXPECT_EQ(alarm->kind, AlarmKind::hang);
}

TEST_F(Watching, ReportsOfAnotherAttemptTellOfNobodyHere) {
  watcher_.report("n1", {.number = 0, .attempt = 7, .ranks = {at(0, 3)}}, 1);
  EXPECT_FALSE(watcher_.has_beats());
  watcher_.report("other", {.number = 0, .attempt = 1, .ranks = {at(0, 3)}}, 1);
  EXPECT_FALSE(watcher_.has_beats());
}

}  // namespace
}  // namespace ms::driver
