// Saving while training continues: what is saved, and what ends a save.
#include "ckpt/saver.h"

#include <gmock/gmock.h>

#include <thread>

#include "ckpt/directory.h"
#include "saver_case.h"

namespace ms::ckpt::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Sizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Saver, Sizes, ::testing::Values(1, 2, 4, 8));

TEST_P(Sizes, ConsecutiveSavesHoldTheStateAtTheirBegin) {
  const Directory dir;
  Outcomes outcomes(GetParam());
  on_ranks({.ranks = GetParam(), .parameters = kOdd}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir.path()});
    for (std::uint64_t version = 1; version <= 2; ++version) {
      rank.update(version);
      EXPECT_FALSE(saver->busy());
      EXPECT_TRUE(rank.begin(*saver, static_cast<std::int64_t>(version)));
      EXPECT_TRUE(saver->busy());
      rank.update(99);  // waits for the copy, not for the file
      outcomes.add(rank, rank.outcome(*saver));
      EXPECT_FALSE(saver->busy());
      for (int i = 0; i < 3; ++i) EXPECT_FALSE(rank.step(*saver)) << "an outcome twice";
    }
  });
  EXPECT_THAT(dir.names(), ElementsAre("step-00000001", "step-00000002"));
  for (const std::uint64_t version : {1U, 2U}) {
    EXPECT_EQ(problem_with(dir.path() + "/" + step_name(static_cast<std::int64_t>(version)), kOdd, version), "");
    const SaveOutcome& outcome = outcomes.of(version - 1, GetParam() - 1);
    EXPECT_TRUE(outcome.committed) << outcome.problem;
    EXPECT_EQ(outcome.step, static_cast<std::int64_t>(version));
    EXPECT_EQ(outcome.problem, "");
    EXPECT_GT(outcome.bytes, 0);
    EXPECT_GE(outcome.total_s, outcome.write_s);
    EXPECT_GT(outcome.write_s, 0);
  }
}

TEST(Saver, RankWithoutStateWritesNothing) {
  for (const int rotate : {0, 1}) {  // rank 0 owns all, or nothing
    const Directory dir;
    Outcomes outcomes(4);
    on_ranks({.ranks = 4, .parameters = kTiny, .rotate = rotate}, [&](Rank& rank) {
      EXPECT_EQ(rank.held().empty(), rank.rank() != (rotate == 0 ? 0 : 3));
      const auto saver = rank.open({.dir = dir.path()});
      rank.update(7);
      EXPECT_TRUE(rank.begin(*saver, 12));
      outcomes.add(rank, rank.outcome(*saver));
    });
    EXPECT_TRUE(outcomes.of(0).committed) << outcomes.of(0).problem;
    EXPECT_THAT(dir.names("step-00000012"),
                ElementsAre("manifest.json", rotate == 0 ? "rank-00000.h5" : "rank-00003.h5"));
    EXPECT_EQ(problem_with(dir.path() + "/step-00000012", kTiny, 7), "");
    EXPECT_EQ(outcomes.of(0, 1).bytes, 0);
  }
}

TEST(Saver, SkipsASaveDuringAnother) {
  const Directory dir;
  Outcomes outcomes(4);
  on_ranks({.parameters = kOdd}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir.path()});
    rank.update(1);
    EXPECT_TRUE(rank.begin(*saver, 1));
    rank.update(2);
    EXPECT_FALSE(rank.begin(*saver, 2));
    outcomes.add(rank, rank.outcome(*saver));
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(rank.step(*saver));
  });
  EXPECT_TRUE(outcomes.of(0).committed) << outcomes.of(0).problem;
  EXPECT_THAT(dir.names(), ElementsAre("step-00000001"));
  EXPECT_EQ(problem_with(dir.path() + "/step-00000001", kOdd, 1), "");
}

TEST(Saver, WaitsForTheSaveBefore) {
  const Directory dir;
  Outcomes outcomes(4);
  on_ranks({.parameters = kOdd}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir.path(), .wait_when_busy = true});
    int heard = 0;
    for (std::uint64_t version = 1; version <= 3; ++version) {
      // In flight when the save begins, so it carries no vote on it.
      if (const auto outcome = rank.step(*saver)) outcomes.add(rank, *outcome), ++heard;
      rank.update(version);
      EXPECT_TRUE(rank.begin(*saver, static_cast<std::int64_t>(version)));
      EXPECT_TRUE(saver->busy());
    }
    for (; heard < 3; ++heard) outcomes.add(rank, rank.outcome(*saver));
  });
  EXPECT_THAT(dir.names(), ElementsAre("step-00000001", "step-00000002", "step-00000003"));
  for (const std::uint64_t version : {1U, 2U, 3U}) {
    EXPECT_TRUE(outcomes.of(version - 1).committed) << outcomes.of(version - 1).problem;
    EXPECT_EQ(outcomes.of(version - 1).step, static_cast<std::int64_t>(version));
    EXPECT_EQ(problem_with(dir.path() + "/" + step_name(static_cast<std::int64_t>(version)), kOdd, version), "");
  }
}

TEST(Saver, FinishEndsASaveWithoutSteps) {
  const Directory dir;
  Outcomes outcomes(4);
  on_ranks({.parameters = kOdd}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir.path()});
    EXPECT_FALSE(saver->finish()) << "nothing was under way";
    for (int i = 0; i < 4; ++i) rank.step(*saver);
    rank.update(1);
    EXPECT_TRUE(rank.begin(*saver, 4));
    rank.step(*saver);  // in flight when finish() ends the save
    const std::optional<SaveOutcome> outcome = saver->finish();
    ASSERT_TRUE(outcome);
    outcomes.add(rank, *outcome);
    EXPECT_FALSE(saver->busy());
    EXPECT_FALSE(saver->finish());
    EXPECT_FALSE(rank.step(*saver));
  });
  EXPECT_TRUE(outcomes.of(0).committed) << outcomes.of(0).problem;
  EXPECT_EQ(problem_with(dir.path() + "/step-00000004", kOdd, 1), "");
}

TEST(Saver, IgnoresVotesCastBeforeTheSave) {
  const Directory dir;
  on_ranks({.ranks = 1, .parameters = kTiny}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir.path()});
    for (int i = 0; i < 6; ++i) rank.step(*saver);  // the last is number 5
    rank.update(1);
    EXPECT_TRUE(rank.begin(*saver, 6));
    while (saver->votes().writing > 0) std::this_thread::sleep_for(1ms);
    for (std::int64_t step = 4; step <= 5; ++step) {
      for (int i = 0; i < 3; ++i) EXPECT_FALSE(saver->agreed(step, {0, 0, 0}));
      EXPECT_FALSE(saver->agreed(step, {0, 0, 1}));
    }
    EXPECT_EQ(saver->votes().committing, 1) << "nothing was agreed yet";
    EXPECT_FALSE(saver->agreed(6, {1, 1, 0})) << "somebody still writes";
    EXPECT_EQ(dir.names(), std::vector<std::string>{"saving-step-00000006"});
    EXPECT_FALSE(saver->agreed(7, {0, 1, 0}));
    while (saver->votes().committing > 0) std::this_thread::sleep_for(1ms);
    EXPECT_FALSE(saver->agreed(8, {0, 1, 0})) << "cast before the commit";
    EXPECT_TRUE(saver->busy());
    const std::optional<SaveOutcome> outcome = saver->agreed(9, {0, 0, 0});
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(outcome->committed) << outcome->problem;
  });
  EXPECT_EQ(problem_with(dir.path() + "/step-00000006", kTiny, 1), "");
}

TEST(Saver, KeepsTheNewestAndThePinned) {
  const Directory dir;
  Outcomes outcomes(2);
  on_ranks({.ranks = 2, .parameters = kTiny}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir.path(), .keep_last = 2});
    for (std::int64_t step = 10; step <= 50; step += 10) {
      rank.update(static_cast<std::uint64_t>(step));
      EXPECT_TRUE(rank.begin(*saver, step));
      outcomes.add(rank, rank.outcome(*saver));
      if (step == 10 && rank.rank() == 0) pin(dir.path(), 10);
      rank.barrier();
    }
  });
  EXPECT_THAT(dir.names(), ElementsAre("step-00000010", "step-00000010.pin", "step-00000040", "step-00000050"));
  EXPECT_THAT(outcomes.of(2).pruned, IsEmpty()) << "the first is pinned";
  EXPECT_THAT(outcomes.of(3).pruned, ElementsAre(dir.path() + "/step-00000020"));
  EXPECT_THAT(outcomes.of(4).pruned, ElementsAre(dir.path() + "/step-00000030"));
  EXPECT_THAT(outcomes.of(4, 1).pruned, IsEmpty()) << "rank 0 prunes";
}

TEST(Saver, KeepsEveryNthCheckpoint) {
  const Directory dir;
  on_ranks({.ranks = 2, .parameters = kTiny}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir.path(), .keep_last = 1, .keep_every = 20});
    for (std::int64_t step = 10; step <= 50; step += 10) {
      rank.update(static_cast<std::uint64_t>(step));
      EXPECT_TRUE(rank.begin(*saver, step));
      EXPECT_TRUE(rank.outcome(*saver).committed);
      rank.barrier();
    }
  });
  EXPECT_THAT(dir.names(), ElementsAre("step-00000020", "step-00000040", "step-00000050"));
}

TEST(Saver, SetsAsideAnotherTimeLine) {
  const Directory dir;
  Outcomes outcomes(2);
  on_ranks({.ranks = 2, .parameters = kTiny}, [&](Rank& rank) {
    const auto saver = rank.open({.dir = dir.path()});
    for (const std::int64_t step : {1, 5, 3}) {
      rank.update(static_cast<std::uint64_t>(step));
      EXPECT_TRUE(rank.begin(*saver, step));
      outcomes.add(rank, rank.outcome(*saver));
    }
  });
  ASSERT_EQ(outcomes.of(2).set_aside.size(), 1U);
  EXPECT_EQ(problem_with(outcomes.of(2).set_aside[0], kTiny, 5), "");
  EXPECT_EQ(newest_complete(dir.path())->step, 3);
}

}  // namespace
}  // namespace ms::ckpt::testing
