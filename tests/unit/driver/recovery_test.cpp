#include "driver/recovery.h"

#include <gtest/gtest.h>

#include "base/exit.h"

namespace ms::driver {
namespace {

constexpr int kNoProgress = static_cast<int>(ExitCode::no_progress);

// A ledger whose attempts ended for `cause`, each after this many steps.
Ledger ledger_of(const std::vector<std::int64_t>& steps, const std::string& cause = "crash") {
  Ledger ledger;
  for (const std::int64_t to : steps) {
    AttemptEntry& entry = ledger.attempts.emplace_back();
    entry.number = static_cast<int>(ledger.attempts.size());
    entry.from_step = 0;
    entry.to_step = to;
    entry.ended_s = 1;
    entry.cause = cause;
  }
  return ledger;
}

TEST(Recovery, IsAnEndOrAnotherAttempt) {
  struct Row {
    const char* what;
    Judgement judgement;
    Ledger ledger;
    bool asked_to_stop;
    std::optional<int> code;
    bool waits;
  };
  const Judgement again{.cause = "crash", .code = 76, .suspects = {}, .why = "it crashed"};
  const Judgement certain{.cause = "bad_node", .code = 69, .suspects = {"n1"}, .certain = true, .why = "n1 is bad"};
  const Judgement storage{.cause = "storage", .code = 74, .suspects = {}, .why = "no disk"};
  const Judgement slurm{.cause = "slurm_busy", .code = 70, .suspects = {}, .why = "slurmctld"};
  const Judgement mismatch{
      .cause = std::string(kMismatchCause), .code = 70, .suspects = {}, .why = "other collectives"};
  const std::string mismatched(kMismatchCause);
  const Row rows[] = {
      {"done", {.next = Next::done, .cause = "done", .suspects = {}, .why = ""}, ledger_of({10}), false, 0, false},
      {"usage",
       {.next = Next::stop, .cause = "usage", .code = 2, .suspects = {}, .why = ""},
       ledger_of({-1}),
       false,
       2,
       false},
      {"a person stops it", again, ledger_of({10}), true, 76, false},
      {"the first failure", again, ledger_of({10}), false, std::nullopt, false},
      {"progress each time", again, ledger_of({10, 20, 30, 40, 50}), false, std::nullopt, false},
      {"one without progress", again, ledger_of({10, 10}), false, std::nullopt, true},
      {"three without progress", again, ledger_of({10, 10, 10, 10}), false, kNoProgress, false},
      {"no progress, but a bad node goes", certain, ledger_of({10, 10, 10, 10}), false, std::nullopt, false},
      {"storage needs time at once", storage, ledger_of({10}, "storage"), false, std::nullopt, true},
      {"and so does Slurm", slurm, ledger_of({10}, "slurm_busy"), false, std::nullopt, true},
      {"a mismatch once", mismatch, ledger_of({10}, mismatched), false, std::nullopt, false},
      {"the same mismatch, no further", mismatch, ledger_of({10, 10}, mismatched), false, kNoProgress, false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const Recovery next = recovery_after(
        row.judgement, {.ledger = row.ledger, .attempts = 1, .retry = {}, .asked_to_stop = row.asked_to_stop});
    EXPECT_EQ(next.code, row.code);
    EXPECT_EQ(next.wait_s > 0, row.waits);
  }
}

TEST(Recovery, KeepsStoragesReasonAndHasPatience) {
  const Judgement storage{.cause = "storage_full", .code = 1, .suspects = {}, .why = "No space left on device"};
  std::vector<std::int64_t> steps{10};
  double waited_s = 0, last_s = 0;
  for (int attempts = 1;; ++attempts) {
    Ledger ledger = ledger_of(steps, "storage_full");
    ledger.attempts.front().cause = "crash";
    steps.push_back(-1);
    const Recovery next = recovery_after(storage, {.ledger = ledger, .attempts = attempts});
    if (next.code) {
      EXPECT_EQ(next.code, static_cast<int>(ExitCode::storage));
      EXPECT_NE(next.why.find("No space left on device"), next.why.npos);
      break;
    }
    EXPECT_GE(next.wait_s, last_s);
    last_s = next.wait_s;
    waited_s += next.wait_s;
    ASSERT_LT(attempts, 20);
  }
  EXPECT_GT(waited_s, 600);
}

TEST(Recovery, EndsAfterItsMostAttempts) {
  const Judgement again{.cause = "crash", .code = 76, .suspects = {}, .why = "it crashed"};
  const Ledger ledger = ledger_of({10, 20, 30});
  EXPECT_FALSE(recovery_after(again, {.ledger = ledger, .attempts = 2, .retry = {.max_attempts = 3}}).code);
  EXPECT_EQ(recovery_after(again, {.ledger = ledger, .attempts = 3, .retry = {.max_attempts = 3}}).code, kNoProgress);
}

TEST(Recovery, WeighsASlowNodeByTheLedger) {
  const Pace::Slow pace{.usual_s = 2, .step_s = 5, .node = "n1", .state = 'T', .why = {}};
  Ledger ledger = ledger_of({10});
  ledger.began_s = 1000;
  watch::SlowNodes slow = slow_node_of(pace, ledger, 1000);
  EXPECT_EQ(slow.nodes, 1U);
  EXPECT_EQ(slow.times, 2.5);
  EXPECT_EQ(slow.lasts_s, watch::kSlowLasts_s);
  EXPECT_EQ(slow.restart_s, watch::kRestart_s);
  EXPECT_EQ(slow.faults_per_s, 0);

  ledger = ledger_of({10, 20, 30});
  ledger.began_s = 1000;
  ledger.attempts[0].recover_s = 20;
  ledger.attempts[1].recover_s = 40;
  ledger.notes = {{.at_s = 1100, .code = kSlow, .nodes = {"n1"}, .text = ""},
                  {.at_s = 1200, .code = kSlow, .nodes = {"n2"}, .text = ""},
                  {.at_s = 1400, .code = kSlowEnded, .nodes = {"n1"}, .text = ""},
                  {.at_s = 1500, .code = kSlow, .nodes = {"n1"}, .text = ""},
                  {.at_s = 1600, .code = kSlowEnded, .nodes = {"n1"}, .text = ""},
                  {.at_s = 1700, .code = kSlowEnded, .nodes = {"n3"}, .text = ""}};
  slow = slow_node_of(pace, ledger, 3000);
  EXPECT_EQ(slow.lasts_s, (watch::kSlowLasts_s + 300 + 100) / 3);
  EXPECT_EQ(slow.restart_s, (watch::kRestart_s + 20 + 40) / 3);
  EXPECT_EQ(slow.faults_per_s, 2.0 / 2000);
  EXPECT_EQ(faults_per_s(ledger, 3000), 2.0 / 2000);
  EXPECT_EQ(faults_per_s(ledger, 1000), 0);  // a clock that was set back
}

}  // namespace
}  // namespace ms::driver
