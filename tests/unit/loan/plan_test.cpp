// What is done to a real Slurm: lending, taking back, notices and the queue; and that a planner without a memory
// resumes.
#include "loan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "loan/live.h"
#include "loan/memory.h"
#include "planned.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::loan {
namespace {

using test::TempDir;
using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
  EXPECT_DOUBLE_EQ(next_look_s(memory_, policy_, notice_s(policy_, 6), view_.now_s), 1);
  view_.now_s += 1;
  EXPECT_THAT(words(plan()), ElementsAre("requeue 7"));
  EXPECT_DOUBLE_EQ(next_look_s(memory_, policy_, notice_s(policy_, 6), view_.now_s), 10);
}

TEST_F(LoanPlan, ANoticeEndsWithItsReason) {
  run(7, {1});
  memory_.notices = {{7, 900.0}, {8, 900.0}, {9, 900.0}};  // 8 has ended by itself
  view_.waiting = {9};                                     // and 9 had itself queued again
  lend({1});
  plan();
  EXPECT_TRUE(memory_.notices.empty());
  EXPECT_EQ(memory_.preemptions, 1);
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

TEST_F(LoanPlan, IdleNodesGoToTheElasticRunsThatTheyHelpMost) {
  lend({1, 2, 3, 4});
  run(7, {1});
  run(8, {2});
  grows(0, {2, 3});
  EXPECT_TRUE(may_grow(view_, memory_, policy_));
  Plan made = plan();
  EXPECT_THAT(words(made), ElementsAre("grow 7"));
  EXPECT_EQ(
      made.actions[0].reason,
      "2 nodes idle on loan and no job waits: from 1 to 3, 3 times as fast if speed goes with nodes: it publishes "
      "no curve");
  grows(1, {2, 3});  // to double both is worth more than a third of one
  made = plan();
  EXPECT_THAT(words(made), ElementsAre("grow 7"));
  EXPECT_THAT(made.actions[0].reason, HasSubstr("from 1 to 2"));
  // By its own curve the first one hardly gains, and by that of the other a third node brings more than a second one.
  read_elastic_comment("ms-driver: elastic from 1 node, speeds 1:100,2:102,3:103; ", view_.jobs[0]);
  read_elastic_comment("ms-driver: elastic from 1 node, speeds 1:100,3:290; ", view_.jobs[1]);
  made = plan();
  EXPECT_THAT(words(made), ElementsAre("grow 8"));
  EXPECT_THAT(made.actions[0].reason, HasSubstr("from 1 to 3, 2.9 times as fast by its own curve"));
  view_.jobs[1].left_s = 5;  // less than to save and to begin again takes
  EXPECT_THAT(words(plan()), ElementsAre("grow 7"));
  policy_.jobs.scale_overhead_s = policy_.schedule.horizon_s;  // to save and to begin again costs more than it brings
  EXPECT_THAT(words(plan()), IsEmpty());
}

TEST_F(LoanPlan, NobodyGrowsWhileNodesAreWantedElsewhere) {
  lend({1, 2, 3});
  run(7, {1});
  grows(0, {2});
  view_.demand_nodes = 1;
  EXPECT_THAT(words(plan()), ElementsAre("grow 7"));
  view_.waiting = {9};
  EXPECT_THAT(words(plan()), IsEmpty());
  view_.waiting.clear();
  view_.nodes[1].trouble = view_.nodes[2].trouble = "it is DRAIN";
  EXPECT_THAT(words(plan()), IsEmpty());
  view_.nodes[1].trouble = view_.nodes[2].trouble = "";
  view_.demand_nodes = 2;  // n2 and n3 are idle, and one of them goes back
  EXPECT_THAT(words(plan()), ElementsAre("reclaim n2"));
  view_.demand_nodes = 1;
  memory_.scaled_s = view_.now_s - policy_.schedule.interval_s + 1;
  EXPECT_THAT(words(plan()), IsEmpty());
  memory_.scaled_s -= 1;
  EXPECT_THAT(words(plan()), ElementsAre("grow 7"));
  policy_.loan.grow = false;
  EXPECT_THAT(words(plan()), IsEmpty());
}

TEST_F(LoanPlan, ARunThatWasQueuedAgainStartsAtOnceAndOneThatRefusedIsAskedLater) {
  lend({1, 2});
  run(7, {1});
  grows(0, {2});
  view_.demand_nodes = 2;
  memory_.growing = {{7, view_.now_s}, {8, view_.now_s}, {9, view_.now_s + 1e8}};
  view_.waiting = {8};
  EXPECT_THAT(words(plan()), ElementsAre("start 8"));
  view_.waiting.clear();
  EXPECT_THAT(words(plan()), IsEmpty()) << "it may be saving";
  view_.now_s += policy_.schedule.interval_s;
  EXPECT_THAT(words(plan()), ElementsAre("grow 7"));
  EXPECT_FALSE(memory_.growing.contains(7));
  view_.now_s += 120;
  plan();
  EXPECT_TRUE(memory_.growing.empty()) << "the others are gone";
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

TEST_F(LoanPlan, EveryStartIsCountedOnceWithItsWait) {
  const TempDir dir;
  view_.started = {{.job = 7, .restarts = 0, .waited_s = 10}, {.job = 8, .restarts = 1, .waited_s = 30}};
  lend({1, 2});
  run(7, {1});
  view_.demand_nodes = 1;
  plan();
  view_.now_s += 10;
  plan();
  view_.now_s += 10;
  view_.started[0] = {.job = 7, .restarts = 1, .waited_s = 50};
  view_.started.pop_back();
  plan();
  EXPECT_EQ(memory_.starts, 3);
  EXPECT_THAT(memory_.waited_s, ElementsAre(10, 30, 50));
  EXPECT_DOUBLE_EQ(memory_.node_s, 2 * 10 * 4);
  EXPECT_DOUBLE_EQ(memory_.training_s, 2 * 10);
  EXPECT_DOUBLE_EQ(memory_.inference_s, 2 * 10);
  write_memory(open_state(dir.path()), memory_);
  memory_ = read_memory(dir.path());
  plan();
  EXPECT_EQ(memory_.starts, 3) << "it was counted before it was killed";
  write_metrics(open_state(dir.path()), view_, memory_);
  const std::string text = read_file(dir / "metrics.prom");
  EXPECT_THAT(text, HasSubstr("\nms_loan_queue_seconds{quantile=\"0.95\"} 50\n"));
  EXPECT_THAT(text, HasSubstr("\nms_loan_queue_seconds_sum 90\nms_loan_queue_seconds_count 3\n"));
  EXPECT_THAT(text, HasSubstr("\nms_loan_usage_ratio 0.5000\n"));
  for (int i = 0; i < 2000; ++i) {
    view_.started[0].restarts = i + 2;
    remember(memory_, view_, policy_);
  }
  EXPECT_EQ(memory_.waited_s.size(), kMostWaits);
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
  memory_.growing = {{8, 2.75}};
  memory_.handing = {{"n3", {.run = 8, .job = 9, .since_s = 2.5}}};
  memory_.sized = {{8, {.nodes = 3, .since_s = 1.5}}};
  memory_.scaled_s = 2.25;
  write_memory(open_state(dir.path()), memory_);
  const Memory read = read_memory(dir.path());
  EXPECT_EQ(read.demand, memory_.demand);
  EXPECT_EQ(read.notices, memory_.notices);
  EXPECT_EQ(read.preemptions, 5);
  EXPECT_EQ(read.asked, memory_.asked);
  EXPECT_EQ(read.leaving, memory_.leaving);
  EXPECT_EQ(read.growing, memory_.growing);
  EXPECT_EQ(read.handing.at("n3").run, 8U);
  EXPECT_EQ(read.handing.at("n3").job, 9U);
  EXPECT_EQ(read.handing.at("n3").since_s, 2.5);
  EXPECT_EQ(read.sized.at(8).nodes, 3);
  EXPECT_EQ(read.sized.at(8).since_s, 1.5);
  EXPECT_EQ(read.scaled_s, memory_.scaled_s);
  EXPECT_EQ(read.seen_s, 3);
  for (const char* text : {"", "{", "[]", "{\"demand\": 3}"}) {
    write_file_atomic(dir / "state.json", text);
    EXPECT_THAT(thrown_by([&] { read_memory(dir.path()); }).message(), HasSubstr("is not a state of ms-loan"));
  }
}

// Who wrote there could make act believe a demand, or follow a link of theirs.
TEST_F(LoanPlan, MemoryOfAnotherUserIsRefused) {
  const TempDir dir;
  const auto refused = [](const auto& body) {
    const Error error = thrown_by(body);
    return error.kind() == "loan.state" ? error.blame() : Blame::bug;
  };
  std::filesystem::create_directory_symlink(dir.path(), dir / "link");
  EXPECT_EQ(refused([&] { open_state(dir / "link"); }), Blame::user);
  write_memory(open_state(dir / "open"), memory_);
  std::filesystem::permissions(dir / "open", std::filesystem::perms::all);
  EXPECT_EQ(refused([&] { open_state(dir / "open"); }), Blame::user);
  EXPECT_EQ(refused([&] { open_state(dir / "open/below"); }), Blame::user);
  if (::geteuid() != 0) GTEST_SKIP() << "a second user takes root";
  constexpr uid_t kOther = 65534;
  const UniqueFd state = open_state(dir / "state");
  write_memory(state, memory_);
  note_action(state, 0, {.step = Step::lend, .node = "n1", .reason = "it is idle"});
  for (const char* name : {"state.json", "decisions.jsonl"})
    ASSERT_EQ(::chown((dir / "state/" + name).c_str(), kOther, kOther), 0);
  EXPECT_EQ(refused([&] { read_memory(state); }), Blame::storage);
  EXPECT_EQ(refused([&] { note_action(state, 0, {.step = Step::lend, .node = "n1"}); }), Blame::storage);
  ASSERT_EQ(::chown((dir / "state").c_str(), kOther, kOther), 0);
  EXPECT_EQ(refused([&] { open_state(dir / "state"); }), Blame::user);
}

TEST_F(LoanPlan, DecisionsAreExplained) {
  const TempDir dir;
  note_action(open_state(dir.path()), 0, {.step = Step::lend, .node = "n1", .reason = "it is idle"});
  note_action(open_state(dir.path()), 60, {.step = Step::notify, .job = 7, .reason = "n1 goes back"});
  note_action(open_state(dir.path()), 90, {.step = Step::requeue, .job = 7, .reason = "n1 goes back\n"});
  EXPECT_EQ(actions_about(dir.path(), "n1", 9), "1970-01-01T00:00:00Z  lend: it is idle\n");
  EXPECT_EQ(actions_about(dir.path(), "7", 1), "1970-01-01T00:01:30Z  requeue: n1 goes back\n\n");
  EXPECT_EQ(actions_about(dir.path(), "17", 9), "");
}

}  // namespace
}  // namespace ms::loan
