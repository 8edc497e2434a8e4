#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckpt/directory.h"

namespace ms::ckpt {
namespace {

using ::testing::ElementsAre;

std::vector<Found> found_at(const std::vector<std::int64_t>& steps, const std::vector<std::int64_t>& pinned = {}) {
  std::vector<Found> result;
  for (const std::int64_t step : steps) {
    Found one;
    one.step = step;
    one.condition = Condition::complete;
    one.pinned = std::find(pinned.begin(), pinned.end(), step) != pinned.end();
    result.push_back(one);
  }
  return result;
}

std::vector<std::int64_t> pruned(const std::vector<Found>& found, std::int64_t keep_last, std::int64_t keep_every) {
  std::vector<std::int64_t> steps;
  for (const Found& one : to_prune(found, {.keep_last = keep_last, .keep_every = keep_every})) {
    steps.push_back(one.step);
  }
  return steps;
}

TEST(ToPrune, KeepsWhatThePolicySays) {
  struct Row {
    std::int64_t keep_last, keep_every;
    std::vector<std::int64_t> gone;
  };
  const std::vector<Found> found = found_at({10, 20, 30, 40, 50});
  for (const Row& row : {Row{5, 0, {}}, Row{99, 0, {}}, Row{3, 0, {10, 20}}, Row{1, 0, {10, 20, 30, 40}},
                         Row{2, 20, {10, 30}}, Row{1, 10, {}}, Row{1, 7, {10, 20, 30, 40}}}) {
    EXPECT_EQ(pruned(found, row.keep_last, row.keep_every), row.gone)
        << "last " << row.keep_last << ", every " << row.keep_every;
  }
}

TEST(ToPrune, NeverTheNewestCompleteOneNorAPinnedOne) {
  EXPECT_THAT(pruned(found_at({10, 20}), 0, 0), ElementsAre(10));
  EXPECT_THAT(pruned(found_at({10, 20}), -1, -1), ElementsAre(10));
  EXPECT_THAT(pruned(found_at({10}), 0, 0), ElementsAre());
  EXPECT_THAT(pruned({}, 0, 0), ElementsAre());
  EXPECT_THAT(pruned(found_at({10, 20, 30}, {10}), 1, 0), ElementsAre(20));
  EXPECT_THAT(pruned(found_at({0, 5, 10}), 1, 10), ElementsAre(5)) << "step 0 is a multiple of all";
}

TEST(ToPrune, OnlyCompleteOnesCountAndGo) {
  std::vector<Found> found = found_at({10, 20, 30, 40, 50, 60});
  found[1].condition = Condition::saving;
  found[2].condition = Condition::damaged;
  found[4].condition = Condition::incomplete;
  found[5].condition = Condition::deleting;
  EXPECT_THAT(pruned(found, 1, 0), ElementsAre(10)) << "40 is the newest complete one";
  EXPECT_THAT(pruned(found, 2, 0), ElementsAre());
}

TEST(ToPrune, WhatARunPassedOverNeitherCountsNorGoes) {
  const auto steps = [](const std::vector<Found>& found) {
    std::vector<std::int64_t> result;
    for (const Found& one : found) result.push_back(one.step);
    return result;
  };
  // Resumed from 20 because 30 and 40 are of no use; 50 and then 60 are of this run.
  const PrunePolicy policy{.keep_last = 2, .passed_over_after = 20, .passed_over_before = 50};
  EXPECT_THAT(steps(to_prune(found_at({10, 20, 30, 40, 50}), policy)), ElementsAre(10));
  EXPECT_THAT(steps(to_prune(found_at({10, 20, 30, 40, 50, 60}), policy)), ElementsAre(10, 20));
}

TEST(ToPrune, TheOldestComesFirstInWhateverOrderTheyWereGiven) {
  EXPECT_THAT(pruned(found_at({30, 10, 40, 20}), 1, 0), ElementsAre(10, 20, 30));
}

}  // namespace
}  // namespace ms::ckpt
