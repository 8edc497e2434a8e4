// Tasks that srun did not start.
#include <gtest/gtest.h>
#include <signal.h>

#include "driver/attempt.h"
#include "driver/judge.h"

namespace ms::driver {
namespace {

// srun returned 0 for "task 0 launch failed" on a node that was just back. A program's own words are no matter, and
// what has trained was started.
TEST(JudgeLaunch, TasksThatSrunDidNotStartAreNotDone) {
  AttemptEvidence evidence;
  evidence.exit_status = 0;
  evidence.nodes = {"n1", "n2"};
  EXPECT_EQ(judge(evidence).next, Next::done);
  const std::string text = "srun: error: task 0 launch failed: Unspecified error";
  evidence.lines = {{.known = known_line(text), .node = "n1", .rank = 0, .text = text}};
  EXPECT_EQ(judge(evidence).next, Next::done) << "a rank printed it";
  evidence.lines[0].rank = -1;
  evidence.lines[0].node = "";
  const Judgement failed = judge(evidence);
  EXPECT_EQ(failed.next, Next::again);
  EXPECT_EQ(failed.cause, "slurm_launch");
  EXPECT_NE(failed.code, 0);
  EXPECT_TRUE(failed.suspects.empty());
  evidence.trained = true;
  EXPECT_EQ(judge(evidence).next, Next::done);
}

// The task or the node that srun names, if all its lines name the same one of several.
TEST(JudgeLaunch, TheNodeThatDoesNotStartTasksIsLookedAt) {
  AttemptEvidence evidence;
  evidence.exit_status = 1;
  evidence.nodes = {"n1", "n2", "n3"};
  evidence.tasks_per_node = 2;
  const auto suspects = [&](const std::vector<std::string>& lines) {
    evidence.lines.clear();
    for (const std::string& line : lines) {
      const std::string text = "srun: error: " + line;
      evidence.lines.push_back({.known = known_line(text), .node = "", .rank = -1, .text = text});
    }
    const Judgement judgement = judge(evidence);
    EXPECT_EQ(judgement.cause, "slurm_launch");
    EXPECT_EQ(judgement.next, Next::again);
    EXPECT_FALSE(judgement.accuses || judgement.certain);
    return judgement.suspects;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(suspects({"task 4 launch failed: Unspecified error"}), Names{"n3"});
  EXPECT_EQ(suspects({"task 4 launch failed: Unspecified error", "task 5 launch failed: Unspecified error"}),
            Names{"n3"});
  EXPECT_EQ(suspects({"Task launch for StepId=14.4 failed on node n2: Communication connection failure"}), Names{"n2"});
  EXPECT_EQ(suspects({"task 1 launch failed: x", "task 2 launch failed: x"}), Names{}) << "two nodes";
  EXPECT_EQ(suspects({"task 600 launch failed: x"}), Names{});
  EXPECT_EQ(suspects({"Task launch for StepId=14.4 failed on node other: x"}), Names{});
  evidence.tasks_per_node = 0;
  EXPECT_EQ(suspects({"task 4 launch failed: Unspecified error"}), Names{}) << "where it runs is not known";
  evidence.tasks_per_node = 2;
  evidence.nodes = {"n3"};
  EXPECT_EQ(suspects({"task 1 launch failed: x"}), Names{}) << "the only node";
}

// As srun prints it: a line for each task, and a last word that names none.
TEST(JudgeLaunch, AllOfSrunsLinesCount) {
  const auto suspects = [](const std::vector<std::string>& lines) {
    Attempt attempt;
    attempt.nodes = {"n1", "n2", "n3"};
    for (const std::string& line : lines) attempt.take_line("srun: error: " + line, -1, 1, 0);
    AttemptEvidence evidence;
    evidence.exit_status = 1;
    evidence.nodes = attempt.nodes;
    evidence.tasks_per_node = 1;
    evidence.lines = attempt.lines();
    return judge(evidence).suspects;
  };
  const std::string last = "Application launch failed: Communication connection failure";
  EXPECT_EQ(suspects({"Task launch for StepId=1.0 failed on node n2: Communication connection failure", last}),
            std::vector<std::string>{"n2"});
  EXPECT_EQ(suspects({"task 0 launch failed: Invalid job credential", "task 1 launch failed: Invalid job credential",
                      "task 2 launch failed: Invalid job credential", last}),
            std::vector<std::string>{})
      << "what all nodes do is no node's fault";
}

TEST(JudgeLaunch, ACommandThatDiesOfTheSignalToSaveIsStopped) {
  AttemptEvidence evidence;
  evidence.asked_to_stop = true;
  evidence.nodes = {"n1"};
  evidence.exit_status = 128 + SIGUSR2;
  EXPECT_EQ(judge(evidence).code, static_cast<int>(ExitCode::stopped));
  evidence.exit_status = 3;
  EXPECT_EQ(judge(evidence).code, 3);
}

// The node of "CANCELLED" is the step's first, whichever failed.
TEST(JudgeLaunch, TheNodeThatSlurmLostIsLookedAt) {
  Attempt attempt;
  attempt.nodes = {"n1", "n2", "n3"};
  for (const char* line :
       {"slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-03-01T04:05:06 DUE TO NODE FAILURE ***",
        "srun: error: Node failure on n2"})
    attempt.take_line(line, -1, 1, 0);
  AttemptEvidence evidence;
  evidence.exit_status = 1;
  evidence.nodes = attempt.nodes;
  evidence.lines = attempt.lines();
  const Judgement judgement = judge(evidence);
  EXPECT_EQ(judgement.cause, "slurm_node_failure");
  EXPECT_EQ(judgement.suspects, std::vector<std::string>{"n2"});
  EXPECT_FALSE(judgement.accuses || judgement.certain);
}

}  // namespace
}  // namespace ms::driver
