// Elastic runs on a real Slurm: what they say of themselves, and that jobs which wait come before their extra nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loan/live.h"
#include "planned.h"
#include "support/errors.h"

namespace ms::loan {
namespace {

using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(LoanElastic, ACommentMaySayAnything) {
  const auto read = [](std::string_view comment) {
    LiveJob job{.nodes = 2, .restarts = 1};
    read_elastic_comment(comment, job);
    return std::pair(job.least_nodes, job.sizes);
  };
  using Read = std::pair<int, std::vector<int>>;
  EXPECT_EQ(read("ms-driver: elastic from 1 node; attempt 1 begins"), Read(1, {}));
  EXPECT_EQ(read("ms-driver: elastic from 2 nodes, start 1 takes 2,3,4,8; attempt 12 trains, start 1 takes 9"),
            Read(2, {2, 3, 4, 8}));
  EXPECT_EQ(read("ms-driver: elastic from 2 nodes, start 0 takes 3,4; attempt 1 trains"), Read(2, {}));
  EXPECT_EQ(read("elastic from 2 nodes, start 1 takes 3"), Read(0, {}));
  EXPECT_EQ(read("ms-driver: elastic from nodes, start 1 takes 1,2,1,5,5,x,6"), Read(0, {1, 2, 5}));
  EXPECT_EQ(read("ms-driver: elastic from -3 nodes, start 1 takes -4"), Read(0, {}));
  EXPECT_EQ(read("ms-driver: elastic from 999999999999 nodes, start 1 takes 999999999999,"), Read(0, {}));
  EXPECT_EQ(read("ms-driver: elastic from 1 node, start 1 takes "), Read(1, {}));
  EXPECT_EQ(read("ms-driver: elastic from 1 node, start 1 takes 1,2,3, speeds 1:5; "), Read(1, {1, 2, 3}));
}

TEST(LoanElastic, ACurveMaySayAnything) {
  const auto speedup = [](const std::string& speeds) {  // of four nodes over two
    LiveJob job{.nodes = 2};
    read_elastic_comment("ms-driver: elastic from 1 node, speeds " + speeds + "; ", job);
    return job.has_curve ? job.curve.speedup(2, 4) : 0;
  };
  EXPECT_DOUBLE_EQ(speedup("2:1000,4:1500"), 1.5);
  EXPECT_DOUBLE_EQ(speedup("1:1e3,2:1.5e3,8:4.5e3"), 5.0 / 3);
  EXPECT_DOUBLE_EQ(speedup("2:1000,4:900"), 1) << "curves do not fall";
  EXPECT_DOUBLE_EQ(speedup("2:1,4:1e18"), 2) << "nobody gains more than nodes";
  EXPECT_DOUBLE_EQ(speedup("3:1,4:2,5:1e18"), 2);
  std::string many = "1:1";
  for (int nodes = 2; nodes < 100; ++nodes) many += fmt::format(",{}:1", nodes);
  for (const std::string& text : {std::string(), std::string("2:1000,4"), std::string("2:1000,2:1500"),
                                  std::string("4:1,2:1"), std::string("2:0"), std::string("2:-1"), std::string("2:nan"),
                                  std::string("2:inf"), std::string("0:1"), std::string("1e9:1"), std::string("2:1e19"),
                                  std::string("2:1,,4:2"), std::string("two:1"), std::string(":"), many}) {
    EXPECT_EQ(speedup(text), 0) << text;
  }
}

// Two elastic runs on three nodes each of n1 to n6, on loan since long ago; a job waits.
class LoanBaseDemand : public LoanPlan {
 protected:
  LoanBaseDemand() {
    for (const char* name : {"n5", "n6"}) view_.nodes.push_back({.name = name, .idle = true});
    lend({1, 2, 3, 4, 5, 6});
    run(7, {1, 2, 3});
    run(8, {4, 5, 6});
    view_.jobs[0].batch_node = "n1";
    view_.jobs[1].batch_node = "n4";
    for (LiveJob& job : view_.jobs) job.least_nodes = 1;
    policy_.schedule.settle_s = 600;
    memory_.sized = {{7, {.nodes = 3, .since_s = 0}}, {8, {.nodes = 3, .since_s = 0}}};
  }
  void waits(std::uint32_t id, int nodes, double limit_s = 3600) {
    view_.waiting.push_back(id);
    view_.wants.push_back({.id = id, .nodes = nodes, .limit_s = limit_s});
  }
};

TEST_F(LoanBaseDemand, TheRunThatLosesLeastGivesANodeUpForAJobThatWaits) {
  waits(9, 1);
  EXPECT_TRUE(may_shrink(view_, memory_, policy_));
  read_elastic_comment("ms-driver: elastic from 1 node, speeds 1:100,3:300; ", view_.jobs[0]);
  read_elastic_comment("ms-driver: elastic from 1 node, speeds 1:100,2:190,3:200; ", view_.jobs[1]);
  const Plan made = plan();
  EXPECT_THAT(words(made), ElementsAre("shrink 8", "notify 8"));
  EXPECT_EQ(made.actions[0].reason,
            "job 9 waits for 1 node and 0 are free: from 3 to 2, 0.95 times as fast by its own curve");
  EXPECT_EQ(made.actions[1].nodes, "n6");
  EXPECT_THAT(made.actions[1].reason, HasSubstr("keeps them if it has them still"));
  EXPECT_THAT(made.on_loan, ElementsAre("n1", "n2", "n3", "n4", "n5"));
  EXPECT_EQ(made.handing.at("n6").job, 9U);
  policy_.loan.shrink = false;
  EXPECT_THAT(words(plan()), IsEmpty());
}

TEST_F(LoanBaseDemand, TheShortestThatFitsComesFirstAndNoRunGoesBelowItsLeast) {
  waits(9, 5, 60);  // four can be had
  waits(10, 3, 7200);
  waits(11, 2, 3600);
  const Plan made = plan();
  EXPECT_THAT(words(made), ElementsAre("shrink 7", "shrink 8", "notify 7", "notify 8"));
  EXPECT_THAT(made.actions[0].reason, HasSubstr("job 11 waits for 2 nodes"));
  EXPECT_THAT(made.notes, ElementsAre("job 9 waits for 5 nodes: 0 idle or on the way, and elastic runs can give up 4"));
  view_.jobs[0].least_nodes = view_.jobs[1].least_nodes = 3;
  EXPECT_THAT(words(plan()), IsEmpty());
}

TEST_F(LoanBaseDemand, SizesNodesAndOtherJobsAreRespected) {
  waits(9, 1);
  view_.wants[0].excluded = {"n5", "n6"};
  EXPECT_THAT(words(plan()), ElementsAre("shrink 7", "notify 7"));
  view_.jobs[0].sizes = {1, 3};  // with two it would be as fast as with one
  Plan made = plan();
  EXPECT_EQ(made.actions[1].nodes, "n[2-3]");
  view_.jobs[0].sizes = {3, 6};
  EXPECT_THAT(words(plan()), IsEmpty());
  view_.jobs[0].sizes = {};
  run(12, {3});  // shares n3
  view_.jobs[0].least_nodes = 2;
  made = plan();
  EXPECT_EQ(made.actions[1].nodes, "n2");
  memory_.growing[7] = view_.now_s;  // it saves
  EXPECT_THAT(words(plan()), IsEmpty());
}

TEST_F(LoanBaseDemand, NobodyShrinksForAJobThatFitsAnywayOrWhileInferenceTakesNodesBack) {
  waits(9, 1);
  view_.nodes.push_back({.name = "n7", .on_loan = true, .idle = true});
  EXPECT_FALSE(may_shrink(view_, memory_, policy_));
  EXPECT_THAT(words(plan()), IsEmpty());
  view_.nodes[6].idle = false;
  view_.nodes[6].completing = true;
  EXPECT_THAT(words(plan()), IsEmpty()) << "it is idle in a moment";
  view_.nodes[6].completing = false;
  EXPECT_THAT(words(plan()), ElementsAre("shrink 8", "notify 8")) << "a job of another partition has it";
  view_.demand_nodes = 1;
  EXPECT_THAT(words(plan()), ElementsAre("reclaim n7")) << "no job of the loan partition has it";
  view_.wants.clear();  // it waits for something else
  view_.demand_nodes = 0;
  EXPECT_THAT(words(plan()), IsEmpty());
}

TEST_F(LoanBaseDemand, ARunThatJustBeganOrGrewIsLeftAlone) {
  waits(9, 1);
  memory_.sized.clear();
  EXPECT_THAT(words(plan()), IsEmpty());
  view_.now_s += 599;
  EXPECT_THAT(words(plan()), IsEmpty());
  memory_.sized[7].nodes = 2;  // it has grown since
  view_.now_s += 1;
  const Plan made = plan();
  EXPECT_THAT(words(made), ElementsAre("shrink 8", "notify 8"));
  memory_.sized[8].nodes = 4;  // who has shrunk has not grown
  EXPECT_THAT(words(plan()), ElementsAre("shrink 8", "notify 8"));
}

TEST_F(LoanBaseDemand, ARunThatWasAskedToGrowAndStartedAgainCountsOnce) {
  view_.started = {{.job = 7, .restarts = 0}, {.job = 8, .restarts = 0}};
  plan();
  memory_.growing = {{7, view_.now_s}};  // not job 8, which a person made larger
  const auto [jobs, started] = std::pair(view_.jobs, view_.started);
  for (LiveNode& node : view_.nodes) node.jobs.clear();
  view_.jobs.clear();  // neither runs nor waits: it is on its way to the queue
  view_.started.clear();
  view_.now_s += policy_.schedule.interval_s + 60;
  plan();
  EXPECT_EQ(memory_.grown, 0);
  EXPECT_EQ(memory_.growing.size(), 1U);
  view_.jobs = jobs;
  view_.started = started;
  for (Start& start : view_.started) start.restarts = 1;
  plan();
  plan();
  EXPECT_EQ(memory_.grown, 1);
  EXPECT_THAT(memory_.growing, IsEmpty());
}

// From the request to the job's start, as it goes and as it may go.
TEST_F(LoanBaseDemand, ANodeIsHandedOverWhenItsRunHasLetGoOfIt) {
  waits(9, 1);
  view_.jobs[1].least_nodes = 3;
  Plan made = plan();
  const auto obey = [&] {
    memory_.handing = made.handing;
    for (LiveNode& node : view_.nodes) node.on_loan = std::ranges::count(made.on_loan, node.name) > 0;
    for (const Action& action : made.actions) {
      if (action.step == Step::notify) {
        memory_.notices.try_emplace(action.job, view_.now_s);
        memory_.asked[action.job] = action.nodes;
      }
    }
  };
  obey();
  ASSERT_FALSE(view_.nodes[2].on_loan);
  view_.now_s += 10;
  made = plan();
  EXPECT_THAT(words(made), IsEmpty()) << "the run saves, and the node on its way is enough";
  // Inference needs it now: it is a node to take back as any other.
  view_.demand_nodes = 1;
  made = plan();
  EXPECT_THAT(made.handing, IsEmpty());
  view_.now_s += 40;
  EXPECT_THAT(words(plan()), ElementsAre("requeue 7"));
  view_.demand_nodes = 0;
  const Memory before = memory_;
  const View then = view_;
  // It has let go.
  view_.nodes[2].jobs.clear();
  view_.jobs[0].nodes = 2;
  view_.nodes[2].completing = true;
  made = plan();
  EXPECT_THAT(words(made), ElementsAre("lend n3"));
  EXPECT_EQ(made.actions[0].reason, "job 7 has let go of it, and job 9 waits");
  EXPECT_EQ(memory_.shrunk, 1);
  obey();
  made = plan();
  EXPECT_THAT(memory_.handing, IsEmpty());
  EXPECT_THAT(words(made), IsEmpty()) << "Slurm starts the job";
  // It has not: it keeps the node, and is left alone for a while.
  memory_ = before;
  view_ = then;
  made = plan();
  EXPECT_THAT(words(made), ElementsAre("lend n3"));
  EXPECT_EQ(made.actions[0].reason, "job 7 has not let go of it in 50.0s, and keeps it");
  obey();
  made = plan();
  EXPECT_EQ(memory_.shrunk, 0);
  EXPECT_THAT(words(made), IsEmpty());
  EXPECT_EQ(memory_.sized.at(7).since_s, view_.now_s);
}

TEST_F(LoanBaseDemand, AJobOfInferenceThatTakesTheNodeHasIt) {
  memory_.handing = {{"n6", {.run = 8, .job = 9, .since_s = view_.now_s}}};
  view_.nodes[5] = {.name = "n6"};  // neither idle nor on loan
  view_.jobs[1].nodes = 2;
  waits(9, 1);
  EXPECT_THAT(words(plan()), IsEmpty()) << "it may have been idle when the jobs were read";
  view_.now_s += 50;
  const Plan made = plan();
  EXPECT_THAT(words(made), ElementsAre("shrink 7", "notify 7"));
  EXPECT_FALSE(made.handing.contains("n6"));
}

TEST_F(LoanPlan, TheGraceTimeHasRoomForWhatSlurmTakes) {
  EXPECT_DOUBLE_EQ(notice_s(policy_, 30), 26);
  EXPECT_DOUBLE_EQ(notice_s(policy_, 56), 0);
  const Error error = thrown_by([&] { notice_s(policy_, 57); });
  EXPECT_EQ(error.blame(), Blame::user);
  EXPECT_EQ(error.message(),
            "loan.grace 1m10s cannot hold: loan.poll is 10.0s, Slurm's KillWait 57.0s and slurm.end 4.0s");
}

}  // namespace
}  // namespace ms::loan
