// What an attempt keeps of its ranks' lines: whose they are, and which of them a rank outlived.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/attempt.h"

namespace ms::driver {
namespace {

using testing::IsEmpty;

// All ranks of a job print that a module is missing, which they can do without; rank 0 alone prints steps.
TEST(OutputLines, OfTheStartAreOutlivedByStepsOfAnyRank) {
  Attempt attempt;
  attempt.nodes = {"n1", "n2"};
  for (int rank = 0; rank < 2; ++rank) attempt.take_line("ModuleNotFoundError: No module named 'triton'", rank, 1, 0);
  for (int step = 1; step < 6; ++step) attempt.take_line(fmt::format("step {}, loss 2.5", step), 0, 1, step);
  EXPECT_TRUE(attempt.words.printed_steps());
  for (const SaidLine& line : attempt.lines()) EXPECT_TRUE(line.outlived) << line.rank;
  attempt.take_line("ValueError: x", 1, 1, 6);
  for (int step = 6; step < 11; ++step) attempt.take_line(fmt::format("step {}, loss 2.5", step), 0, 1, 6.1);
  EXPECT_FALSE(attempt.lines().back().outlived) << "what was under way when a rank ended is printed behind it";
}

TEST(OutputLines, OfABrokenDeviceAreNotOutlivedByOtherRanks) {
  Attempt attempt;
  attempt.nodes = {"n1", "n2"};
  attempt.take_line("RuntimeError: CUDA error: uncorrectable ECC error encountered", 1, 1, 0);
  for (int step = 1; step < 6; ++step) attempt.take_line(fmt::format("step {}, loss 2.5", step), 0, 1, step);
  EXPECT_FALSE(attempt.lines().front().outlived);
}

TEST(OutputLines, LookLikeNoOthers) {
  Attempt attempt;
  attempt.nodes = {"n1"};
  for (const char* line : {"Config(pid=41, grad_clip=1.0)", "torch.OutOfMemoryError: CUDA out of memory",
                           "Traceback (most recent call last):", "loss: 2.31", "loss: 2.30"})
    attempt.take_line(line, 0, 1, 0);
  ASSERT_EQ(attempt.lines().size(), 1U) << "a rank's numbers end no traceback of another one";
  EXPECT_FALSE(attempt.lines().front().outlived);
  for (int i = 0; i < 9; ++i) attempt.take_line("100%|##########| 3/3 [00:10<00:00, 3.5s/it]", 0, 1, 9 + i);
  EXPECT_FALSE(attempt.words.printed_steps()) << "shards are loaded in this way, too";
  attempt.take_line("RuntimeError: CUDA error: uncorrectable ECC error encountered", 0, 1, 30);
  EXPECT_EQ(attempt.lines().back().known->says, Says::proof) << "no other host was named";
}

TEST(OutputLines, OfATaskWhoseNodeIsNotKnownAccuseNone) {
  Attempt attempt;
  attempt.nodes = {"n1", "n2"};
  attempt.take_line("RuntimeError: CUDA error: uncorrectable ECC error encountered", 1, 0, 0);
  AttemptEvidence evidence;
  evidence.exit_status = 1;
  evidence.nodes = attempt.nodes;
  evidence.lines = attempt.lines();
  const Judgement judgement = judge(evidence);
  EXPECT_THAT(judgement.suspects, IsEmpty());
  EXPECT_FALSE(judgement.certain);
}

TEST(OutputLines, OfACommandThatIsCalledWronglySayHowItIsCalled) {
  AttemptEvidence evidence;
  evidence.exit_status = 2;
  evidence.nodes = {"n1"};
  EXPECT_EQ(judge(evidence).next, Next::again) << "programs end with 2 of much else";
  evidence.said_usage = true;
  EXPECT_EQ(judge(evidence).cause, "usage");
  EXPECT_EQ(judge(evidence).next, Next::stop);
  evidence.printed_steps = true;
  EXPECT_EQ(judge(evidence).next, Next::again);
}

}  // namespace
}  // namespace ms::driver
