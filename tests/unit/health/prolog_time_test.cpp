// However slow checks, lock and Slurm are, a prolog keeps to the time that check-site compares with Slurm's time-outs.
#include "health/act/prolog_time.h"

#include "flow_fixture.h"
#include "health/checks/registry.h"
#include "slurm/plugstack.h"

namespace ms::health {
namespace {

constexpr double kBatchStartTimeout_s = 10;  // as Slurm comes

TEST(PrologTime, TheDefaultsFitEachOther) {
  const PrologConfig defaults;
  EXPECT_LT(longest_prolog_s(defaults), slurm::kPluginDeadline_s);
  EXPECT_LT(slurm::kPluginDeadline_s, kBatchStartTimeout_s);
  // A check whose hanging is a finding that may drain is cut by its own deadline, not by the prolog's.
  for (const Check& check : passive_checks()) {
    if (check.on_hang != Severity::critical) continue;
    EXPECT_LT(check.deadline_s, defaults.deadline_s) << check.code;
  }
}

// Slurm's calls take `call_s` each, and are cut as the real ones are.
class SlowFlowTest : public FlowTest {
 protected:
  int slow_prolog(double checks_s, double call_s) {
    const double end_s = clock_.now_s() + time_for_slurm_s(policy_.prolog);
    slurm_.before = [=, this](const std::string& call) {
      if (clock_.now_s() >= end_s) throw no_answer();
      const int commands = call.starts_with("job") ? 2 : 1;
      const double most_s = std::min((end_s - clock_.now_s()) / commands, kSlurmCall_s);
      if (call_s > most_s) {
        clock_.advance_s(most_s + kSlurmKill_s);
        throw no_answer();
      }
      clock_.advance_s(call_s * commands);
    };
    World slow = world();
    slurm_.left = [=, this] { return std::max(0.0, end_s - clock_.now_s()); };
    slow.run_checks = [=, this](const RunOptions& options) {
      clock_.advance_s(std::min(checks_s, options.deadline_s));
      return results_;
    };
    return prolog_flow(policy_, job_, slow);
  }
};

TEST_F(SlowFlowTest, ItEndsInTimeAndNoDrainIsLeftUncounted) {
  int drained = 0, failed = 0, let_start = 0;
  for (const double checks_s : {0.3, 2.0, 3.0, 100.0}) {
    for (int hundredths = 1; hundredths <= 220; hundredths += hundredths < 100 ? 4 : 20) {
      for (const int crowd : {0, 1}) {
        fresh();
        // Another node's drain comes while ours is set: above the cap, so ours has to be taken back.
        slurm_.after = [&](const std::string& call) {
          if (crowd != 0 && call.starts_with("drain")) slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
        };
        const double begin_s = clock_.now_s();
        const int status = slow_prolog(checks_s, hundredths * 0.01);
        EXPECT_LE(clock_.now_s() - begin_s, longest_prolog_s(policy_.prolog)) << checks_s << ' ' << hundredths;
        EXPECT_FALSE(slurm_.is_drained("node02") && crowd != 0) << checks_s << ' ' << hundredths;
        EXPECT_TRUE(status == 0 || slurm_.is_drained("node02")) << checks_s << ' ' << hundredths;
        drained += slurm_.is_drained("node02") ? 1 : 0;
        failed += status == 69 ? 1 : 0;
        let_start += status == 0 ? 1 : 0;
      }
    }
  }
  // Both were met: a Slurm that is quick enough, and one that is not.
  EXPECT_GT(failed, 20);
  EXPECT_GE(drained, failed);
  EXPECT_GT(let_start, 20);
}

TEST_F(SlowFlowTest, ASlurmThatIsNotQuickButWellStillGetsItsDrain) {
  EXPECT_EQ(slow_prolog(2.0, 0.6), 69);  // a mount that hung, and a busy controller
  EXPECT_TRUE(slurm_.is_drained("node02"));
  fresh();
  EXPECT_EQ(slow_prolog(4.0, 0.15), 69);
  fresh();
  EXPECT_EQ(slow_prolog(2.0, 1.95), 0);
  EXPECT_FALSE(slurm_.is_drained("node02"));
}

TEST_F(SlowFlowTest, ALockThatIsHeldIsPartOfTheTime) {
  const UniqueFd held = Notes(policy_.paths.notes).try_lock_decision();
  EXPECT_EQ(slow_prolog(100, 0.1), 0);
  EXPECT_LE(clock_.now_s(), policy_.prolog.deadline_s + kLockPatience_s + kOwnWork_s);
}

}  // namespace
}  // namespace ms::health
