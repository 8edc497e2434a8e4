// What is done to a real Slurm: lending, taking back, notices and the queue; and that a planner without a memory
// resumes.
#include "loan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "loan/memory.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::loan {
namespace {

using test::TempDir;
using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LoanPlan : public testing::Test {
 protected:
  LoanPlan() {
    policy_.loan = {.poll_s = 10,
                    .grace_s = 60,
                    .lend_interval_s = 100,
                    .reserve_quantile = 1,
                    .reserve_window_s = 0,
                    .headroom_percent = 0};
    view_.now_s = 1000;
    for (const char* name : {"n1", "n2", "n3", "n4"}) view_.nodes.push_back({.name = name, .idle = true});
  }
  // A job of the loan partition on these nodes of n1, n2, ...
  void run(std::uint32_t id, const std::vector<std::size_t>& nodes) {
    for (const std::size_t node : nodes) {
      view_.nodes[node - 1].idle = false;
      view_.nodes[node - 1].jobs.push_back(static_cast<int>(view_.jobs.size()));
    }
    view_.jobs.push_back({.id = id, .nodes = static_cast<int>(nodes.size())});
  }
  void lend(const std::vector<std::size_t>& nodes) {
    for (const std::size_t node : nodes) view_.nodes[node - 1].on_loan = true;
  }
  Plan plan() {
    remember(memory_, view_, policy_);
    return make_plan(view_, memory_, policy_);
  }
  static std::vector<std::string> words(const Plan& plan) {
    std::vector<std::string> all;
    for (const Action& action : plan.actions) {
      all.push_back(
          fmt::format("{} {}", to_string(action.step), action.node.empty() ? std::to_string(action.job) : action.node));
    }
    return all;
  }

  Policy policy_;
  View view_;
  Memory memory_;
};

TEST_F(LoanPlan, IdleNodesGoOnLoanBeyondTheReserve) {
  view_.demand_nodes = 2;
  view_.nodes[0].idle = false;  // inference is there
  const Plan made = plan();
  EXPECT_THAT(words(made), ElementsAre("lend n2", "lend n3"));
  EXPECT_THAT(made.on_loan, ElementsAre("n2", "n3"));
}

// The clock of the machine was ahead, and was set right.
TEST_F(LoanPlan, ANoticeOfTheFutureBeginsNow) {
  run(5, {1});
  memory_.notices[5] = view_.now_s + 1e8;
  memory_.seen_s = memory_.watched_from_s = memory_.lent_s = view_.now_s + 1e8;
  view_.demand_nodes = 4;
  EXPECT_THAT(words(plan()), IsEmpty());
  EXPECT_EQ(memory_.notices[5], view_.now_s);
  EXPECT_EQ(memory_.watched_from_s, view_.now_s);
  EXPECT_EQ(memory_.lent_s, view_.now_s);
  view_.now_s += 60;
  EXPECT_THAT(words(plan()), ElementsAre("requeue 5"));
}

TEST_F(LoanPlan, LendingWaitsUntilDemandWasWatchedAndForTheInterval) {
  policy_.loan.reserve_window_s = 300;
  EXPECT_THAT(words(plan()), IsEmpty());
  EXPECT_THAT(plan().notes, ElementsAre(HasSubstr("not yet watched for loan.reserve_window")));
  for (int i = 0; i < 3; ++i) {
    view_.now_s += 100;
    EXPECT_EQ(words(plan()).size(), i == 2 ? 4U : 0U);
  }
  view_.now_s += 500;  // nobody watched
  EXPECT_THAT(words(plan()), IsEmpty());
  policy_.loan.reserve_window_s = 0;
  memory_.lent_s = view_.now_s - 50;
  EXPECT_THAT(plan().notes, ElementsAre(HasSubstr("4 nodes could go on loan in 50.0s: loan.lend_interval")));
}

TEST_F(LoanPlan, ARiseTakesTheCheapestNodesBackAndGivesNotice) {
  lend({1, 2, 3});
  run(7, {1, 2});
  run(8, {3});
  run(9, {3});
  view_.demand_nodes = 3;
  const Plan made = plan();
  EXPECT_THAT(words(made), ElementsAre("reclaim n1", "reclaim n2", "notify 7"));
  EXPECT_THAT(made.on_loan, ElementsAre("n3"));
  EXPECT_THAT(made.actions[0].reason, "inference needs 3 nodes, and has 1");
}

TEST_F(LoanPlan, APlannerThatWasKilledResumes) {
  run(7, {1, 2});  // n2 is on loan, n1 is not any more: somebody took it back and died
  lend({2});
  view_.demand_nodes = 3;
  EXPECT_THAT(words(plan()), ElementsAre("notify 7"));
  memory_.notices[7] = view_.now_s;
  view_.now_s += 49;
  const Plan waits = plan();
  EXPECT_THAT(words(waits), IsEmpty());
  EXPECT_THAT(waits.notes, ElementsAre(HasSubstr("job 7 has 1.0s to save")));
  EXPECT_DOUBLE_EQ(next_look_s(memory_, policy_, view_.now_s), 1);
  view_.now_s += 1;
  EXPECT_THAT(words(plan()), ElementsAre("requeue 7"));
  EXPECT_DOUBLE_EQ(next_look_s(memory_, policy_, view_.now_s), 10);
}

TEST_F(LoanPlan, ANoticeEndsWithItsReason) {
  run(7, {1});
  memory_.notices = {{7, 900.0}, {8, 900.0}};  // 8 has ended by itself
  lend({1});
  plan();
  EXPECT_TRUE(memory_.notices.empty());
}

TEST_F(LoanPlan, NodesThatAreGoingBackAreNotAskedForTwice) {
  run(7, {1});
  lend({2, 3});
  run(8, {2});
  run(9, {3});
  memory_.notices[7] = view_.now_s;
  view_.demand_nodes = 2;  // n4, and n1 as soon as job 7 has saved
  EXPECT_THAT(words(plan()), IsEmpty());
}

// An elastic run on n1, n2 and n3, of at least so many, with its script on n1.
TEST_F(LoanPlan, ElasticRunsLetGoOfNodesBeforeJobsEnd) {
  lend({1, 2, 3, 4});
  run(7, {1, 2, 3});
  run(8, {4});
  view_.jobs[0].batch_node = "n1";
  view_.jobs[0].least_nodes = 2;
  view_.demand_nodes = 1;
  EXPECT_TRUE(takes_back(view_, policy_));
  const Plan made = plan();
  EXPECT_THAT(words(made), ElementsAre("reclaim n2", "notify 7"));
  EXPECT_EQ(made.actions[1].nodes, "n2");
  view_.demand_nodes = 2;  // it keeps its least: one job has to end, and its nodes are the smaller shares
  const Plan more = plan();
  EXPECT_THAT(words(more), ElementsAre("reclaim n2", "reclaim n1", "notify 7"));
  EXPECT_EQ(more.actions[2].nodes, "") << "its script is on n1";
}

TEST_F(LoanPlan, AnElasticRunIsAskedAgainWhenMoreIsWantedAndEndsWhenItDoesNotAnswer) {
  run(7, {1, 2, 3, 4});
  view_.jobs[0].batch_node = "n1";
  view_.jobs[0].least_nodes = 1;
  lend({1, 3, 4});
  view_.demand_nodes = 1;
  EXPECT_THAT(words(plan()), ElementsAre("notify 7"));
  memory_.notices[7] = view_.now_s;
  memory_.asked[7] = "n2";
  EXPECT_THAT(words(plan()), IsEmpty());
  view_.demand_nodes = 2;
  const Plan more = plan();
  EXPECT_THAT(words(more), ElementsAre("reclaim n3", "notify 7"));
  EXPECT_EQ(more.actions[1].nodes, "n[2-3]");
  view_.nodes[2].on_loan = false;
  memory_.asked[7] = "n[2-3]";
  view_.now_s += 50;
  EXPECT_THAT(words(plan()), ElementsAre("requeue 7"));
}

TEST_F(LoanPlan, NodesThatCameBackAreCountedAndTimed) {
  run(7, {1, 2});
  lend({1});
  plan();
  memory_.notices[7] = view_.now_s;
  memory_.asked[7] = "n2";
  view_.now_s += 4;
  view_.nodes[1].jobs.clear();  // the run has let go of n2
  plan();
  EXPECT_EQ(memory_.shrunk, 1);
  EXPECT_EQ(memory_.returned, 1);
  EXPECT_DOUBLE_EQ(memory_.returned_max_s, 4);
  EXPECT_TRUE(memory_.asked.empty());
  EXPECT_FALSE(takes_back(view_, policy_));
}

TEST_F(LoanPlan, NodesWithTroubleAreLeftAlone) {
  lend({1, 2});
  run(7, {1});
  view_.nodes[0].trouble = "it is DRAIN";
  view_.nodes[3].trouble = "it is DOWN";
  view_.demand_nodes = 3;  // of the two that are usable
  const Plan made = plan();
  EXPECT_THAT(words(made), ElementsAre("reclaim n2"));
  EXPECT_THAT(made.on_loan, ElementsAre("n1"));
}

TEST_F(LoanPlan, MemoryIsWrittenAndRead) {
  const TempDir dir;
  EXPECT_EQ(read_memory(dir.path()).seen_s, 0);
  memory_.demand = {{1.5, 3}, {2.5, 4}};
  memory_.seen_s = 3;
  memory_.notices = {{7, 2.25}};
  memory_.preemptions = 5;
  memory_.asked = {{7, "n[1-2]"}};
  memory_.leaving = {{"n1", 2.5}};
  write_memory(dir.path(), memory_);
  const Memory read = read_memory(dir.path());
  EXPECT_EQ(read.demand, memory_.demand);
  EXPECT_EQ(read.notices, memory_.notices);
  EXPECT_EQ(read.preemptions, 5);
  EXPECT_EQ(read.asked, memory_.asked);
  EXPECT_EQ(read.leaving, memory_.leaving);
  EXPECT_EQ(read.seen_s, 3);
  for (const char* text : {"", "{", "[]", "{\"demand\": 3}"}) {
    write_file_atomic(dir / "state.json", text);
    EXPECT_THAT(thrown_by([&] { read_memory(dir.path()); }).message(), HasSubstr("is not a state of ms-loan"));
  }
}

TEST_F(LoanPlan, DecisionsAreExplained) {
  const TempDir dir;
  note_action(dir.path(), 0, {.step = Step::lend, .node = "n1", .reason = "it is idle"});
  note_action(dir.path(), 60, {.step = Step::notify, .job = 7, .reason = "n1 goes back"});
  note_action(dir.path(), 90, {.step = Step::requeue, .job = 7, .reason = "n1 goes back\n"});
  EXPECT_EQ(actions_about(dir.path(), "n1", 9), "1970-01-01T00:00:00Z  lend: it is idle\n");
  EXPECT_EQ(actions_about(dir.path(), "7", 1), "1970-01-01T00:01:30Z  requeue: n1 goes back\n\n");
  EXPECT_EQ(actions_about(dir.path(), "17", 9), "");
}

}  // namespace
}  // namespace ms::loan
