#include "loan/why_waits.h"

#include <gmock/gmock.h>

#include "planned.h"

namespace ms::loan {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

slurm::Job job_of(std::uint32_t id, std::string state, std::string reason = {}, std::string nodes = {}) {
  slurm::Job job;
  job.id = id;
  job.state = std::move(state);
  job.reason = std::move(reason);
  job.nodes = std::move(nodes);
  return job;
}

class WhyWaits : public LoanPlan {
 protected:
  static constexpr std::uint32_t kJob = 50;
  void wait(int nodes, std::vector<std::string> excluded = {}) {
    view_.waiting = {kJob};
    view_.wants = {{.id = kJob, .nodes = nodes, .excluded = std::move(excluded)}};
  }
  std::string why() {
    const Plan now = plan();
    return waiting_text(job_of(kJob, "PENDING", "Resources"), view_, now, policy_);
  }
};

TEST(WhyWaitsOfSlurm, SomeJobsDoNotWaitForNodes) {
  const struct {
    slurm::Job job;
    const char* text;
  } rows[] = {
      {job_of(7, "RUNNING", "", "n1"), "job 7 does not wait: it is on n1"},
      {job_of(7, "COMPLETED"), "job 7 does not wait: it is COMPLETED"},
      {job_of(7, "PENDING", "Dependency"), "job 7 waits for other jobs"},
      {job_of(7, "PENDING", "QOSMaxNodePerUserLimit"), "Slurm's reason QOSMaxNodePerUserLimit"},
  };
  for (const auto& row : rows) EXPECT_THAT(not_waiting_text(row.job), HasSubstr(row.text));
  slurm::Job held = job_of(7, "PENDING", "JobHeldUser");
  held.priority = 0;
  EXPECT_THAT(not_waiting_text(held), HasSubstr("job 7 is held: "));
  for (const char* reason : {"Resources", "Priority"}) EXPECT_EQ(not_waiting_text(job_of(7, "PENDING", reason)), "");
}

TEST_F(WhyWaits, TheTimeLimitsOfThoseThatRunSayWhen) {
  lend({1, 2, 3});
  run(1, {1});
  run(2, {2, 3});
  wait(2);
  EXPECT_THAT(why(), HasSubstr("when is not known, for jobs on the others have no time limit, or more than 100 days "
                               "left of it"));
  view_.jobs[0].left_s = view_.jobs[1].left_s = 364.9 * 86400;
  EXPECT_THAT(why(), HasSubstr("when is not known"));
  view_.jobs[0].left_s = 600;
  view_.jobs[1].left_s = 7200;
  EXPECT_THAT(why(),
              AllOf(HasSubstr("job 50 waits for 2 nodes"),
                    HasSubstr("it needs 2 nodes, and may use 3 on loan (0 idle): by their time limits, jobs leave "
                              "enough of the others within 2h00m\n")));
  wait(1);
  EXPECT_THAT(why(), HasSubstr("jobs leave enough of the others within 10m00s"));
  wait(1, {"n1"});
  EXPECT_THAT(why(), HasSubstr("it needs 1 node, and may use 2 on loan (0 idle): by their time limits, jobs leave "
                               "enough of the others within 2h00m"));
}

TEST_F(WhyWaits, ANodeInItsEpilogIsNotIdle) {
  lend({1, 2, 3});
  run(1, {1});
  view_.jobs[0].left_s = 600;
  view_.nodes[1].idle = false;
  view_.nodes[1].completing = true;
  wait(1);
  EXPECT_THAT(why(), HasSubstr("it needs 1 node, and may use 3 on loan (1 idle, 1 being cleaned up): Slurm may start "
                               "it at any moment"));
  wait(2);
  EXPECT_THAT(why(), HasSubstr("(1 idle, 1 being cleaned up): enough of the others are about to be free\n"));
  wait(3);
  EXPECT_THAT(why(), HasSubstr("(1 idle, 1 being cleaned up): by their time limits, jobs leave enough of the others "
                               "within 10m00s"));
}

TEST_F(WhyWaits, MoreThanIsOnLoanMustBeLentFirst) {
  lend({1});
  wait(3);
  EXPECT_THAT(why(), AllOf(HasSubstr("it needs 3 nodes, and may use 1 on loan (1 idle): more nodes must be lent first"),
                           HasSubstr("act does: lend n2: it is idle")));
  wait(1);
  EXPECT_THAT(why(), HasSubstr("Slurm may start it at any moment"));
}

TEST_F(WhyWaits, InferenceComesFirst) {
  view_.demand_nodes = 3;
  wait(2);
  EXPECT_THAT(why(), AllOf(HasSubstr("inference needs 3 of 4 now: the job can start when it needs at most 2"),
                           Not(HasSubstr("may use"))));
}

TEST_F(WhyWaits, SomeCanNeverStartAndOfSomeNothingIsKnown) {
  wait(5);
  EXPECT_THAT(why(), HasSubstr("it cannot start: of the 4 nodes of the policy it could have 4"));
  wait(4, {"n2"});
  EXPECT_THAT(why(), HasSubstr("it could have 3"));
  view_.wants.clear();
  EXPECT_THAT(why(), HasSubstr("names nodes or features"));
  view_.waiting.clear();
  EXPECT_THAT(why(), HasSubstr("not in partition loan"));
}

}  // namespace
}  // namespace ms::loan
