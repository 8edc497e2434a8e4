// The block in which torchrun sums up its workers' failures, as several nodes print it.
#include <gmock/gmock.h>

#include "driver/attempt.h"

namespace ms::driver {
namespace {

// The lines that torchrun prints of the worker that it saw fail first.
std::vector<std::string> summary(const std::string& time, int rank, const std::string& code) {
  return {"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
          "Root Cause (first observed failure):",
          "[0]:",
          "  time      : 2025-06-12_" + time,
          "  host      : n.example.org",
          fmt::format("  rank      : {} (local_rank: 0)", rank),
          fmt::format("  exitcode  : {} (pid: 984)", code),
          "============================================================"};
}

struct Torchruns {
  Attempt attempt;
  Torchruns() { attempt.nodes = {"n1", "n2", "n3"}; }
  void print(int task, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) attempt.take_line(line, task, 1, 0);
  }
  void srun(const std::string& line) { attempt.take_line(line, -1, 1, 0); }
  Judgement judgement() const {
    AttemptEvidence evidence;
    evidence.exit_status = 1;
    evidence.first_exit = attempt.words.first_exit();
    evidence.nodes = attempt.nodes;
    evidence.lines = attempt.lines();
    return judge(evidence);
  }
};

TEST(TorchrunSummary, TheFirstWorkerOfAllNodesIsNamed) {
  Torchruns run;
  run.print(0, summary("10:00:07", 0, "1"));
  run.srun("srun: error: n1: task 0: Exited with exit code 1");
  run.print(1, summary("10:00:05", 4, "-9"));
  run.print(2, summary("10:00:07", 8, "-15"));
  const TaskExit exit = run.attempt.words.first_exit().value();
  EXPECT_EQ(exit.node, "n2");
  EXPECT_EQ(exit.rank, 4);
  EXPECT_EQ(exit.code, 128 + 9);
  const Judgement judgement = run.judgement();
  EXPECT_EQ(judgement.next, Next::again);
  EXPECT_EQ(judgement.cause, "rank_died");
  EXPECT_EQ(judgement.rank, 4);
  EXPECT_EQ(judgement.error, "") << "a signal from outside is no error of the program";
  EXPECT_FALSE(judgement.accuses);
}

TEST(TorchrunSummary, WithinASecondWhoCrashedWasFirst) {
  Torchruns run;
  run.print(0, summary("10:00:07", 0, "1"));
  run.print(1, summary("10:00:07", 4, "-11"));
  run.print(2, summary("10:00:07", 8, "1"));
  EXPECT_EQ(run.attempt.words.first_exit().value().rank, 4);
  EXPECT_EQ(run.judgement().error, "Segmentation fault");
  EXPECT_EQ(run.judgement().rank, 4);
}

TEST(TorchrunSummary, TheTraceOfARankTellsMore) {
  Torchruns run;
  run.print(1, {"[rank4]: Traceback (most recent call last):", "[rank4]:   File \"train.py\", line 7, in <module>",
                "[rank4]: ZeroDivisionError: division by zero"});
  run.print(1, summary("10:00:05", 4, "1"));
  run.print(0, summary("10:00:04", 0, "1"));
  const Judgement judgement = run.judgement();
  EXPECT_EQ(judgement.cause, kException);
  EXPECT_THAT(judgement.error, testing::HasSubstr("ZeroDivisionError"));
  EXPECT_EQ(judgement.rank, 4);
}

// torchrun --redirects: what the worker prints is in a file.
TEST(TorchrunSummary, NamesAWorkerWhoseOutputIsElsewhere) {
  Torchruns run;
  run.print(1, summary("10:00:05", 4, "3"));
  const Judgement judgement = run.judgement();
  EXPECT_EQ(judgement.cause, kException);
  EXPECT_EQ(judgement.rank, 4);
  EXPECT_THAT(judgement.error, testing::HasSubstr("rank 4 failed first, with exit code 3"));
  EXPECT_THAT(judgement.said_on, testing::ElementsAre("n2"));
}

TEST(TorchrunSummary, SigtermIsNoRootCause) {
  for (const char* code : {"-15", "Signals.SIGTERM", "0", "-9999999999", ""}) {
    Torchruns run;
    run.print(1, summary("10:00:05", 4, code));
    EXPECT_FALSE(run.attempt.words.first_exit()) << code;
  }
}

// The node whose torchrun itself was lost has no summary: what the others then print of their workers is a consequence.
TEST(TorchrunSummary, IsNoWordAboutANodeWithoutOne) {
  Torchruns run;
  run.srun("srun: error: n3: task 2: Segmentation fault");
  run.print(0, summary("10:00:07", 0, "1"));
  const TaskExit exit = run.attempt.words.first_exit().value();
  EXPECT_EQ(exit.node, "n3");
  EXPECT_EQ(exit.rank, -1);
}

TEST(TorchrunSummary, AWorkerAsksForNoOtherAttempt) {
  Torchruns run;
  run.print(0, summary("10:00:04", 0, "1"));
  run.print(1, summary("10:00:05", 4, "93"));
  run.srun("srun: error: n1: task 0: Exited with exit code 1");
  const Judgement judgement = run.judgement();
  EXPECT_EQ(judgement.next, Next::stop);
  EXPECT_EQ(judgement.code, 93);
}

}  // namespace
}  // namespace ms::driver
