// What a job that requires healthy nodes, and the script of a heterogeneous one, are told.
#include <gtest/gtest.h>

#include "flow_fixture.h"

namespace ms::health {
namespace {

TEST_F(FlowTest, AJobThatRequiresIsToldThatASiteOnlyObserves) {
  policy_.act.mode = "observe";
  job_.preflight = slurm::Preflight::require;
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(slurm_.calls.empty());
  EXPECT_EQ(note(),
            "ms-diag: node02 has gpu.ecc gpu 3: 4 errors\nms-diag: this job runs there all the same: "
            "--ms-preflight=require has no effect here, since the site's policy only observes\n");
}

TEST_F(FlowTest, TheScriptOfAHeterogeneousJobLearnsOfAComponentsNode) {
  slurm_.job.het_leader = 6;
  EXPECT_EQ(prolog(), 69);
  EXPECT_EQ(slurm_.num_calls("comment 7 " + std::string(kNote)), 1);
  EXPECT_EQ(slurm_.num_calls("notify 6 " + std::string(kNote) + "; Slurm ends all components of this job"), 1);
  EXPECT_EQ(slurm_.num_calls("job 6"), 1);
  EXPECT_EQ(slurm_.num_calls("requeue 6"), 1) << "Slurm 26.05 does not do it";
  fresh();
  slurm_.job.het_leader = 7;  // it has the script itself, which has not begun
  EXPECT_EQ(prolog(), 69);
  EXPECT_EQ(slurm_.num_calls("notify"), 0);
  EXPECT_EQ(slurm_.num_calls("requeue"), 0);
}

TEST_F(FlowTest, ANotificationThatFailsChangesNothing) {
  slurm_.job.batch = false;
  job_.preflight = slurm::Preflight::require;
  slurm_.before = [](const std::string& call) {
    if (call.starts_with("notify")) throw no_answer();
  };
  EXPECT_EQ(prolog(), 69);
  EXPECT_TRUE(said("srun or salloc is not told"));
  EXPECT_TRUE(slurm_.is_drained("node02"));
}

}  // namespace
}  // namespace ms::health
