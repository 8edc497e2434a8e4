// Tasks that srun did not start.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ms::driver
