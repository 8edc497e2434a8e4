#include "driver/pace.h"

#include <gtest/gtest.h>

#include <functional>

#include "driver/watcher.h"

namespace ms::driver {
namespace {

RankState rank_in(char state, double cpu) {
  RankState rank;
  rank.rank = 0;
  rank.state = state;
  rank.cpu = cpu;
  return rank;
}

// Three nodes, reports every 0.25 s.
struct SteppedRun {
  Pace pace;
  double now_s = 0, steps = 0;
  std::function<RankState(const std::string&, int)> state = [](const std::string&, int) { return rank_in('S', 0.1); };

  SteppedRun() { pace.begin(3); }
  // Returns whether it was slow in between.
  bool runs(double seconds, double step_s) {
    bool slow = false;
    int number = 0;
    for (const double end_s = now_s + seconds; now_s < end_s; now_s += 0.25) {
      steps += 0.25 / step_s;
      for (const char* node : {"n1", "n2", "n3"}) pace.hear(node, {state(node, number)});
      pace.step(static_cast<std::int64_t>(steps), now_s);
      slow = slow || pace.slow();
      ++number;
    }
    return slow;
  }
};

TEST(Pace, ThatIsEvenIsNotSlow) {
  for (const double step_s : {0.1, 6.0}) {
    SteppedRun run;
    EXPECT_FALSE(run.runs(2000, step_s)) << step_s;
    EXPECT_FALSE(run.runs(2000, 1.7 * step_s)) << "less than twice";
    EXPECT_EQ(run.pace.lost_s(), 0);
  }
}

TEST(Pace, OfASaveOrAnEvaluationIsNotSlow) {
  SteppedRun run;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(run.runs(60, 0.1));
    run.now_s += 100;
  }
}

TEST(Pace, IsSlowWhileItIsAndNamesNoNodeWithoutEvidence) {
  SteppedRun run;
  // One rank computes longer than the others, which an uneven program does, too.
  run.state = [](const std::string& node, int) { return node == "n2" ? rank_in('R', 1) : rank_in('S', 0.05); };
  EXPECT_FALSE(run.runs(60, 0.1));
  const double began_s = run.now_s;
  EXPECT_TRUE(run.runs(60, 0.6));
  ASSERT_TRUE(run.pace.slow());
  EXPECT_NEAR(run.pace.slow()->times(), 6, 0.5);
  EXPECT_NEAR(run.pace.slow()->since_s, began_s, Pace::kLeast_s + 1);
  EXPECT_EQ(run.pace.slow()->node, "");
  EXPECT_NEAR(run.pace.lost_s(), 50, 8);
  run.runs(20, 0.1);
  EXPECT_FALSE(run.pace.slow());
}

TEST(Pace, NamesTheNodeWhoseRanksAloneAreKeptFromRunning) {
  const RankState kept[] = {rank_in('T', 0.2), rank_in('R', 0.15), rank_in('D', 0)};
  for (const RankState& state : kept) {
    SteppedRun run;
    run.runs(60, 0.1);
    run.state = [&](const std::string& node, int number) {
      return node == "n3" && number % 5 != 0 ? state : rank_in('S', 0.1);
    };
    run.runs(60, 0.5);
    ASSERT_TRUE(run.pace.slow());
    EXPECT_EQ(run.pace.slow()->node, "n3") << state.state;
    run.state = [&](const std::string&, int number) { return number % 2 == 0 ? state : rank_in('S', 0.1); };
    run.runs(120, 0.1);
    run.runs(60, 0.5);
    ASSERT_TRUE(run.pace.slow());
    EXPECT_EQ(run.pace.slow()->node, "") << "of all nodes, as on a machine that all of them share";
  }
}

TEST(Pace, OfAnotherNumberOfNodesHasAnotherUsual) {
  SteppedRun run;
  run.runs(60, 0.1);
  run.pace.begin(3);
  run.steps = 0;
  EXPECT_TRUE(run.runs(60, 0.5)) << "as before, in the attempt after";
  run.pace.begin(2);
  run.steps = 0;
  EXPECT_FALSE(run.runs(60, 0.5));
}

// A program saves: who works may leave a node then.
TEST(Saves, AreBehindARunWhenEveryRankDidAStepAfterThem) {
  watch::Deadlines deadlines(600);
  Watcher watcher(1, {"n1", "n2"}, {}, deadlines, 0);
  const auto report = [&](const char* node, int number, std::int64_t step, std::map<std::string, double> took,
                          double now_s) {
    RankState rank = rank_in('S', 0);
    rank.rank = number;
    rank.step = step;
    watcher.report(node, {.number = 0, .attempt = 1, .ranks = {rank}, .took = std::move(took)}, now_s);
  };
  report("n1", 0, 100, {{"step", 1}}, 10);
  report("n2", 1, 100, {{"step", 1}}, 10);
  EXPECT_FALSE(watcher.has_saved_since(0)) << "no section of that name";
  report("n1", 0, 101, {{"save", 1}}, 11);
  EXPECT_FALSE(watcher.has_saved_since(0)) << "the other may save still";
  report("n1", 0, 102, {}, 12);
  report("n2", 1, 102, {}, 12);
  EXPECT_TRUE(watcher.has_saved_since(10));
  EXPECT_FALSE(watcher.has_saved_since(11)) << "before the drain";
}

}  // namespace
}  // namespace ms::driver
