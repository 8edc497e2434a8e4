#include "slurm/known_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace ms::slurm {
namespace {

TEST(KnownLines, EveryRowIsFoundAndNoneHidesAnother) {
  std::set<std::string_view> proofs;
  for (const KnownLine& row : known_lines()) {
    std::string start = row.source == "Slurm" ? "srun: error: " : "[rank3]: ";
    if (row.says == Says::proof) proofs.insert(row.text);
    if (row.says == Says::hint && proofs.contains(row.text)) start = "gpu-c12: [rank17]: RuntimeError: CUDA error: ";
    EXPECT_EQ(known_line(fmt::format("{}{} (and more)", start, row.text)), &row) << row.text;
  }
  EXPECT_EQ(known_line("step 3, loss 2.5"), nullptr);
}

TEST(KnownLines, SourceAndLogsAreNoReason) {
  for (const std::string_view line :
       {"    raise FileNotFoundError(path)  # CUDA out of memory", "  File \"Input/output error.py\", line 3, in x",
        "+ echo 'CUDA driver version is insufficient'",
        "INFO cannot use apex: ModuleNotFoundError: No module named 'apex'", "pyxis: importing docker image: x.sqsh",
        "the Error is small", "RuntimeWarning: overflow encountered in exp", "Error rate 3 %"}) {
    EXPECT_EQ(known_line(line), nullptr) << line;
  }
  for (const std::string_view line :
       {"ValueError: x", "AssertionError", "[rank3]: my.module.DataError: x", "SystemExit: 3",
        "[default1]:ValueError: x", "my_pkg.errors.ShapeException: (3, 4)"}) {
    ASSERT_NE(known_line(line), nullptr) << line;
    EXPECT_EQ(known_line(line)->cause, kException) << line;
  }
}

TEST(KnownLines, OnlyTheHardwaresOwnWordsAreProof) {
  std::set<std::string_view> causes;
  for (const KnownLine& row : known_lines()) {
    if (row.says == Says::proof) causes.insert(row.cause);
    EXPECT_FALSE(row.source.empty()) << row.text;
  }
  EXPECT_EQ(causes, (std::set<std::string_view>{"gpu_ecc", "gpu_lost"}));
}

TEST(KnownLines, WhoRepeatsListsOrLooksForWordsSaysNothingOfItself) {
  for (const std::string_view line :
       {"RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "  what():  CUDA error: uncorrectable ECC error encountered",
        "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        "node02:31:77 [1] NCCL WARN Cuda failure 214 'uncorrectable ECC error encountered'",
        "RuntimeError: HIP error: uncorrectable ECC error encountered"}) {
    ASSERT_NE(known_line(line), nullptr) << line;
    EXPECT_EQ(known_line(line)->says, Says::proof) << line;
    EXPECT_EQ(repeated(known_line(line))->says, Says::hint) << line;
  }
  for (const std::string_view line :
       {"gpu-c12: [rank17]: RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: rank 17 on gpu-c12 reported: CUDA error: uncorrectable ECC error encountered",
        "WARNING: CUDA error: uncorrectable ECC error encountered", "[1,9]<stderr>: gpu-b07: NVML: GPU is lost"}) {
    ASSERT_NE(known_line(line), nullptr) << line;
    EXPECT_EQ(known_line(line)->says, Says::hint) << line;
  }
  for (const std::string_view line :
       {"[node-watch] looking for: 'GPU has fallen off the bus', 'uncorrectable ECC error encountered'",
        "INFO excluded hosts: gpu-a11 (GPU is lost), gpu-a12 (GPU has fallen off the bus)",
        "FAILED test_faults.py::test_words[uncorrectable ECC error encountered] - AssertionError",
        "ValueError: bad line: GPU is lost", "INFO vocabulary (503)", "job.sh: line 3: module: command not found",
        "scancel: error: Kill job error on job id 4711: Job/step already completing or completed",
        "RuntimeError: ball_query kernel launch failed : invalid configuration argument",
        "[W1120 12:00:00.123 socket.cpp:697] [c10d] The client socket cannot be initialized: Name or service not "
        "known"}) {
    const KnownLine* known = known_line(line);
    EXPECT_TRUE(known == nullptr || known->says == Says::exception) << line;
  }
}

// Of a step that Slurm ends it names the first node, whatever happened where; quoted words are no proof.
TEST(KnownLines, WordsOfOthersAccuseNoNode) {
  for (const char* why : {"TIME LIMIT", "PREEMPTION", "JOB REQUEUE", "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"}) {
    const KnownLine* const known = known_line(
        fmt::format("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO {} ***", why));
    ASSERT_NE(known, nullptr) << why;
    EXPECT_EQ(known->says, Says::trouble) << why;
    EXPECT_EQ(known->blame, Blame::slurm) << why;
  }
  EXPECT_EQ(known_line("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***"), nullptr);
  for (const char* line : {R"([rank2]: RuntimeError: no message "uncorrectable ECC error encountered" was found)",
                           "[rank2]: ValueError: grep `GPU is lost` failed"}) {
    ASSERT_NE(known_line(line), nullptr) << line;
    EXPECT_NE(known_line(line)->says, Says::proof) << line;
  }
  EXPECT_EQ(known_line("NCCL WARN Cuda failure 214 'uncorrectable ECC error encountered'")->says, Says::proof);
}

TEST(KnownLines, NamesBeforeALineHideNoCause) {
  const auto cause = [](std::string_view line) { return known_line(line) == nullptr ? "" : known_line(line)->cause; };
  EXPECT_EQ(cause("slurmstepd: error: pyxis:     [ERROR] URL https://r/v2 returned error code: 429 Too Many Requests"),
            "web_service");
  EXPECT_EQ(cause("slurmstepd: error: pyxis: child 4102 failed with error code: 1"), "container");
  EXPECT_EQ(cause("slurmstepd-node02: error: Detected 1 oom_kill event in StepId=5.0."), "job_memory");
  EXPECT_EQ(cause("RuntimeError: Operation timed out!"), kException);
}

// Hugging Face, urllib3, NCCL and others tell of each request that they repeat.
TEST(KnownLines, WhatIsRetriedIsNoReason) {
  for (const char* line :
       {R"(INFO:httpx:HTTP Request: GET https://hub.example/api/models/x "HTTP/1.1 429 Too Many Requests")",
        "429 Too Many Requests, retrying in 8 s", "pull: unexpected status code 429 Too Many Requests: will retry",
        "Retrying (Retry(total=2)) after connection broken by 'NewConnectionError('[Errno 111] Connection refused')': "
        "/x",
        "node02:411:902 [0] NCCL INFO Call to connect returned Connection timed out, retrying",
        "OSError: [Errno -3] Temporary failure in name resolution. Retrying (1/3)"})
    EXPECT_EQ(known_line(line), nullptr) << line;
  for (const char* line : {"FATAL: GET https://r/v2: unexpected status code 429 Too Many Requests",
                           "429 Too Many Requests after retrying 5 times", "429 Too Many Requests: gave up retrying",
                           "[ERROR] URL https://r/v2 returned error code: 429 Too Many Requests, not retrying"}) {
    ASSERT_NE(known_line(line), nullptr) << line;
    EXPECT_EQ(known_line(line)->cause, "web_service") << line;
  }
  const KnownLine* const broken = known_line("CUDA error: uncorrectable ECC error encountered, retrying");
  ASSERT_NE(broken, nullptr);
  EXPECT_EQ(broken->cause, "gpu_ecc") << "a broken device stays broken";
}

TEST(KnownLines, TwoOccurrencesOfAnErrorAreAlikeButForNumbers) {
  EXPECT_EQ(without_numbers("[rank1]: ValueError: step 25 on node02 at 0x7f31, 10.0.0.1:400"),
            without_numbers("[rank12]: ValueError: step 7 on node3 at 0x1, 10.20.0.1:5"));
  EXPECT_NE(without_numbers("KeyError: 'a'"), without_numbers("KeyError: 'b'"));
}

TEST(KnownLines, AWorkersNumberIsTakenOff) {
  std::string_view line = "[rank12]: ValueError: x";
  EXPECT_EQ(take_worker(line), 12);
  EXPECT_EQ(line, "ValueError: x");
  line = "[default1]:step 3";
  EXPECT_EQ(take_worker(line), -1) << "counted from each node's first";
  EXPECT_EQ(line, "step 3");
  for (std::string_view other : {"[rank", "[rank1", "rank 1: x", "", "[2025-06-12] x"}) {
    const std::string_view before = other;
    EXPECT_EQ(take_worker(other), -1);
    EXPECT_EQ(other, before);
  }
  for (std::string_view empty : {"[rank1]:", "[rank1]: "}) {
    EXPECT_EQ(take_worker(empty), 1);
    EXPECT_EQ(empty, "");
  }
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
  EXPECT_EQ(of("srun: error: node02: task 1: Terminated"), "node02 -1") << "by whom is not known";
  EXPECT_EQ(of("srun: error: Ended, says node02: task 1: Killed"), "nothing");
  EXPECT_EQ(of("srun: error: Unable to create step for job 7"), "nothing");
  EXPECT_EQ(of("srun: launch/slurm: _step_signal: Terminating StepId=1.3"), "nothing");
}

}  // namespace
}  // namespace ms::slurm
