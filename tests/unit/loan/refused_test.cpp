// Slurm refuses to change the loan partition: a shell script stands for scontrol.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "loan/live.h"
#include "planned.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::loan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LoanRefused : public LoanPlan {
 protected:
  LoanRefused() : state_(open_state(temporary_ / "state")) {
    const std::string scontrol = temporary_ / "scontrol";
    test::spill(scontrol, "#!/bin/sh\ncd " + temporary_.path() +
                              "\necho \"$*\" >> calls\n[ ! -e refuses ] || { /bin/cat refuses >&2; exit 1; }\n");
    std::filesystem::permissions(scontrol, std::filesystem::perms::owner_all);
    policy_.slurm.scontrol = scontrol;
    policy_.slurm.loan_partition = "loan";
  }
  void refuse(const std::string& why) { test::spill(temporary_ / "refuses", why + "\n"); }
  void obey() { std::filesystem::remove(temporary_ / "refuses"); }
  void act(std::vector<std::string> on_loan, std::vector<Action> actions) {
    const Plan plan{.on_loan = std::move(on_loan), .actions = std::move(actions), .notes = {}};
    execute(slurm::Commands(command_options(policy_.slurm)), policy_, view_, plan, state_, memory_);
  }
  // The actions and reasons about the node.
  std::string log_of(const std::string& node) const { return actions_about(temporary_ / "state", node, 100); }
  static std::ptrdiff_t lines(const std::string& text) { return std::ranges::count(text, '\n'); }

  const test::TempDir temporary_;
  UniqueFd state_;
};

TEST_F(LoanRefused, IsRecordedOnceAndTriedAgain) {
  const Action lend{.step = Step::lend, .node = "n1", .reason = "idle"};
  refuse("slurm_update error: Access/permission denied");
  for (int poll = 0; poll < 3; ++poll) {
    const Error error = test::thrown_by([&] { act({"n1"}, {lend}); });
    EXPECT_EQ(error.blame(), Blame::slurm);
    memory_ = read_memory(state_);  // as a planner that was restarted
  }
  EXPECT_EQ(memory_.lent, 0);
  EXPECT_EQ(lines(log_of("n1")), 2) << log_of("n1");
  EXPECT_THAT(log_of("n1"), HasSubstr("lend: refused"));
  EXPECT_THAT(log_of("n1"), HasSubstr("permission denied"));
  EXPECT_EQ(lines(test::slurp(temporary_ / "calls")), 3);

  obey();
  act({"n1"}, {lend});
  EXPECT_EQ(memory_.lent, 1);
  EXPECT_TRUE(memory_.refused.empty());
  EXPECT_EQ(lines(log_of("n1")), 3);
  EXPECT_TRUE(log_of("n1").ends_with("lend: idle\n")) << log_of("n1");
}

// A new step of the plan is recorded, and one that was refused before is not again.
TEST_F(LoanRefused, AnotherChangeIsRecordedByItself) {
  view_.nodes[1].on_loan = true;
  const Action lend{.step = Step::lend, .node = "n1", .reason = "idle"};
  const Action reclaim{.step = Step::reclaim, .node = "n2", .reason = "inference needs it"};
  refuse("slurm_update error: Invalid node name specified");
  EXPECT_THROW(act({"n1", "n2"}, {lend}), Error);
  EXPECT_THROW(act({"n1"}, {lend, reclaim}), Error);
  EXPECT_EQ(lines(log_of("n1")), 2);
  EXPECT_EQ(lines(log_of("n2")), 2);
  EXPECT_EQ(memory_.reclaimed, 0);
  // The plan gives the loan of n1 up: a later one is a new decision.
  EXPECT_THROW(act({}, {reclaim}), Error);
  EXPECT_THAT(memory_.refused, ElementsAre(std::pair<const std::string, std::string>("n2", "reclaim")));
}

// A refusal ends what follows: jobs are not signalled for nodes that have not left the partition.
TEST_F(LoanRefused, NothingBehindItIsDone) {
  view_.nodes[0].on_loan = true;
  run(7, {1});
  refuse("slurm_update error: Unable to contact slurm controller");
  EXPECT_THROW(act({}, {{.step = Step::reclaim, .node = "n1", .reason = "inference needs it"},
                        {.step = Step::notify, .job = 7, .reason = "has n1"}}),
               Error);
  EXPECT_TRUE(memory_.notices.empty());
  EXPECT_EQ(log_of("7"), "");
  EXPECT_EQ(lines(test::slurp(temporary_ / "calls")), 1);
}

}  // namespace
}  // namespace ms::loan
