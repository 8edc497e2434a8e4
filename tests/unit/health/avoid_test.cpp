// Which weights follow from a prediction.
#include "health/commands/avoid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace ms::health {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

std::string refusal(const std::string& text) {
  try {
    prediction_in(text, "f");
  } catch (const Error& error) { return error.kind() + ": " + error.message(); }
  return "";
}

TEST(Chances, OfUnitsTheLikeliestOfANodeCounts) {
  const Prediction prediction =
      prediction_in(R"({"schema":1,"model":"x","skill":true,"day":20000.5,"units":[{"unit":"n1/gpu0","chance":0.2,
      "reasons":[]},{"unit":"n1/gpu7","chance":0.9},{"unit":"n2","chance":0}],"not_known":["n3"]})",
                    "f");
  EXPECT_THAT(prediction.chances, ElementsAre(Pair("n1", 0.9), Pair("n2", 0)));
  EXPECT_DOUBLE_EQ(prediction.day, 20000.5);
}

// A document that is right but for these units.
std::string score_of(const std::string& units) {
  return R"({"schema":1,"skill":true,"day":20000,"units":)" + units + "}";
}

TEST(Chances, WhatIsNoScoreIsRefused) {
  EXPECT_THAT(refusal("unit,chance\nn1,0.5\n"), HasSubstr("avoid.file: f: it is no JSON"));
  EXPECT_THAT(refusal(R"({"schema":2,"units":[]})"), HasSubstr("another version"));
  EXPECT_THAT(refusal(R"({"schema":1,"skill":true,"day":1})"), HasSubstr("units"));
  EXPECT_THAT(refusal(R"({"schema":1,"skill":true,"units":[]})"), HasSubstr("day"));
  EXPECT_THAT(refusal(score_of(R"([{"unit":"n1"}])")), HasSubstr("chance"));
  EXPECT_THAT(refusal(score_of(R"([{"unit":"n1","chance":7}])")), HasSubstr("not 0 to 1"));
  EXPECT_THAT(refusal(score_of(R"([{"unit":"n1","chance":null}])")), HasSubstr("chance"));
  EXPECT_THAT(refusal(score_of(R"([{"unit":"-x Weight=1","chance":1}])")), HasSubstr("not the name"));
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("no JSON"));
}

TEST(Chances, OfAModelWithoutSkillAreRefused) {
  for (const char* skill : {"", R"("skill":false,)", R"("skill":null,)"}) {
    EXPECT_THAT(refusal(std::string(R"({"schema":1,)") + skill + R"("day":1,"units":[]})"), HasSubstr("skill"));
  }
}

TEST(Chances, OfADayLongAgoOrAheadAreRefused) {
  constexpr double kDay_s = 86400;
  const auto refused = [](double day) {
    try {
      check_day({.day = day}, "f", 20000 * kDay_s, 2 * kDay_s);
    } catch (const Error& error) { return error.message(); }
    return std::string();
  };
  EXPECT_EQ(refused(20000), "");
  EXPECT_EQ(refused(19998.1), "");
  EXPECT_EQ(refused(20000.01), "") << "clocks differ";
  EXPECT_THAT(refused(19997.9), HasSubstr("2d02h old"));
  EXPECT_THAT(refused(260), HasSubstr("old"));
  EXPECT_THAT(refused(20000.1), HasSubstr("still to come"));
  EXPECT_THAT(refused(99999), HasSubstr("still to come"));
}

// n0, n1, ... with these weights.
std::vector<slurm::Node> cluster(const std::vector<std::uint32_t>& weights) {
  std::vector<slurm::Node> nodes(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    nodes[i].name = "n" + std::to_string(i);
    nodes[i].weight = weights[i];
  }
  return nodes;
}

std::vector<std::string> changes(const AvoidPlan& plan) {
  std::vector<std::string> lines;
  for (const WeightChange& change : plan.changes) {
    lines.push_back(change.node + " " + std::to_string(change.from) + " " + std::to_string(change.to));
  }
  return lines;
}

TEST(PlanAvoidance, RaisesTheLikeliestWithinTheBoundAndLowersThoseThatFell) {
  const auto nodes = cluster({1, 1, 50, kRaised + 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  const AvoidPlan plan = plan_avoidance({{"n0", 0.6}, {"n1", 0.7}, {"n2", 0.9}, {"n3", 0.1}, {"gone", 0.99}}, nodes,
                                        {.least_chance = 0.5, .most_percent = 10});
  EXPECT_THAT(changes(plan), ElementsAre("n1 1 1000001", "n2 50 1000050", "n3 1000007 7"));
  EXPECT_THAT(plan.beyond, ElementsAre("n0"));
  EXPECT_THAT(plan.unknown, ElementsAre("gone"));
}

TEST(PlanAvoidance, ASecondRunChangesNothing) {
  const std::map<std::string, double> chances = {{"n0", 0.8}, {"n1", 0.1}};
  const AvoidPlan plan = plan_avoidance(chances, cluster({kRaised + 1, 1}), {});
  EXPECT_THAT(plan.changes, IsEmpty());
  EXPECT_THAT(plan.stay, ElementsAre("n0"));
  EXPECT_THAT(avoid_text(plan, true), HasSubstr("show hostnames 'n0')"));
}

TEST(PlanAvoidance, WhatNobodyJudgesStaysAndTakesItsPlace) {
  const AvoidPlan plan = plan_avoidance({{"n1", 0.9}}, cluster({kRaised + 1, 1}), {});
  EXPECT_THAT(plan.changes, IsEmpty());
  EXPECT_THAT(plan.not_known, ElementsAre("n0"));
  EXPECT_THAT(plan.beyond, ElementsAre("n1"));
}

TEST(PlanAvoidance, ALikelierNodeTakesThePlaceOfAnother) {
  const AvoidPlan plan = plan_avoidance({{"n0", 0.6}, {"n1", 0.9}}, cluster({kRaised + 1, 1}), {});
  EXPECT_THAT(changes(plan), ElementsAre("n0 1000001 1", "n1 1 1000001"));
  EXPECT_THAT(avoid_text(plan, false), HasSubstr("others are likelier"));
  EXPECT_THAT(avoid_text(plan, false), HasSubstr("--apply"));
}

TEST(PlanAvoidance, WeightsOfTheSitesOwnAreNotTouched) {
  try {
    plan_avoidance({{"n0", 0.9}}, cluster({kRaised, kRaised, 1}), {});
    ADD_FAILURE();
  } catch (const Error& error) { EXPECT_EQ(error.kind(), "avoid.weights"); }
}

}  // namespace
}  // namespace ms::health
