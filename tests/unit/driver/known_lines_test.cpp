#include "driver/known_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace ms::driver {
namespace {

TEST(KnownLines, EveryRowIsFoundAndNoneHidesAnother) {
  for (const KnownLine& row : known_lines()) {
    EXPECT_EQ(known_line(fmt::format("[rank3]: {} (and more)", row.text)), &row) << row.text;
  }
  EXPECT_EQ(known_line("step 3, loss 2.5"), nullptr);
}

TEST(KnownLines, ATasksLabelIsTakenOff) {
  std::string_view line = " 12: loss 3";
  EXPECT_EQ(take_label(line), 12);
  EXPECT_EQ(line, "loss 3");
  for (std::string_view other : {"srun: error", "12 loss", "", "-1: x", "12:x"}) {
    const std::string_view before = other;
    EXPECT_EQ(take_label(other), -1);
    EXPECT_EQ(other, before);
  }
}

TEST(KnownLines, SrunSaysHowATaskEnded) {
  const auto of = [](std::string_view line) {
    const std::optional<TaskExit> exit = task_exit(line);
    return exit ? fmt::format("{} {}", exit->node, exit->code) : "nothing";
  };
  EXPECT_EQ(of("srun: error: node01: task 0: Exited with exit code 2"), "node01 2");
  EXPECT_EQ(of("srun: error: node[01-02]: tasks 0-1: Exited with exit code 1"), " 1");
  EXPECT_EQ(of("srun: error: node02: task 1: Segmentation fault (core dumped)"), "node02 139");
  EXPECT_EQ(of("srun: error: node02: task 1: Out Of Memory"), "node02 137");
  EXPECT_EQ(of("srun: error: node02: task 1: Terminated"), "nothing");
  EXPECT_EQ(of("srun: error: Unable to create step for job 7"), "nothing");
  EXPECT_EQ(of("srun: launch/slurm: _step_signal: Terminating StepId=1.3"), "nothing");
}

}  // namespace
}  // namespace ms::driver
