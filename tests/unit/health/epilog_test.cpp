// What happens after jobs: the epilog, and an operator who takes a drain back.
#include <gtest/gtest.h>

#include <fstream>

#include "flow_fixture.h"

namespace ms::health {
namespace {

namespace fs = std::filesystem;

// As at every interval: no job, but its node.
class HealthTest : public FlowTest {
 protected:
  void health() {
    slurm::JobEnv no_job;
    no_job.node = "node02";
    health_flow(policy_, no_job, world());
  }
};

TEST_F(HealthTest, AHealthCheckDrainsByTheSameRulesAndTouchesNoJob) {
  const std::vector<Result> bad = results_;
  results_ = {passed()};
  health();
  EXPECT_EQ(runs_.size(), 1);
  EXPECT_TRUE(slurm_.calls.empty());
  EXPECT_TRUE(events().empty());
  results_ = bad;
  policy_.act.mode = "observe";
  health();
  EXPECT_TRUE(slurm_.calls.empty());
  EXPECT_EQ(events(), Words{"would-drain"});
  fresh();
  policy_.act.mode = "act";
  slurm_.site.config["SchedulerParameters"] = "";  // hurts jobs whose prolog fails; here none does
  health();
  EXPECT_EQ(slurm_.nodes.at("node02").reason, kReason);
  EXPECT_EQ(slurm_.job.admin_comment, "");
  EXPECT_FALSE(fs::exists(directory_ / "notes/job-0"));
  EXPECT_EQ(events(), Words{"drain"});
  EXPECT_EQ(spooled_events(policy_.paths.spool).at(0).second.job_id, 0);
  EXPECT_EQ(runs_.at(0).deadline_s, policy_.prolog.deadline_s);
  health();  // every interval
  EXPECT_EQ(events(), Words{"drain"});
  EXPECT_EQ(state().strikes, 1);
}

// A job that loads a file system makes it slow for everybody.
TEST_F(HealthTest, WhatTookTooLongDrainsNoNodeOnWhichJobsRun) {
  Finding slow = critical("disk.mounts", "/data", "did not answer within 2 s");
  slow.blame = Blame::node;
  slow.unit = "s";
  results_ = {judged({slow})};
  slurm_.jobs = {8};
  health();
  EXPECT_FALSE(slurm_.is_drained("node02"));
  results_ = {judged({slow, critical("gpu.ecc", "gpu 3", "4 errors")})};
  health();
  EXPECT_EQ(slurm_.nodes.at("node02").reason, kReason);
  fresh();
  results_ = {judged({slow})};
  slurm_.before = [](const std::string& call) {
    if (call.starts_with("jobs ")) throw Error("slurm.command", Blame::slurm, "no answer");
  };
  health();
  EXPECT_FALSE(slurm_.is_drained("node02")) << "it is not known whether jobs run";
  fresh();
  health();
  EXPECT_TRUE(slurm_.is_drained("node02"));
}

// Prologs and epilogs on shared nodes: the job of the prolog does not run yet, others may.
TEST_F(FlowTest, WhatTookTooLongDrainsNoSharedNodeBesideOtherJobs) {
  Finding slow = critical("disk.mounts", "/data", "did not answer within 2 s");
  slow.blame = Blame::node;
  slow.unit = "s";
  results_ = {judged({slow})};
  slurm_.jobs = {7, 8};
  EXPECT_EQ(prolog(), 0);
  EXPECT_FALSE(slurm_.is_drained("node02"));
  slurm_.jobs = {7};
  EXPECT_NE(prolog(), 0);
  EXPECT_TRUE(slurm_.is_drained("node02"));
}

// That the passive checks find nothing any more does not show that the node is well: ms-diag repair tests it.
TEST_F(HealthTest, AHealthCheckUndrainsNothingNotEvenItsOwn) {
  health();
  ASSERT_TRUE(slurm_.is_drained("node02"));
  results_ = {passed()};
  health();
  EXPECT_EQ(slurm_.nodes.at("node02").reason, kReason);
  EXPECT_EQ(events(), Words{"drain"});
}

TEST_F(HealthTest, AHealthCheckLeavesOthersNodesAlone) {
  slurm_.set_drained("node02", "rack is moved", "alice");
  health();
  EXPECT_EQ(slurm_.nodes.at("node02").reason, "rack is moved");
  fresh();
  policy_.act.max_drained = 0;
  health();
  EXPECT_FALSE(slurm_.is_drained("node02"));
  std::ofstream(policy_.act.kill_switch) << "";
  fresh();
  health();
  EXPECT_TRUE(runs_.empty());
}

TEST_F(FlowTest, TheEpilogRemovesTheNote) {
  Notes(policy_.paths.notes).write(7, {"x"});
  Notes(policy_.paths.notes).write(8, {"y"});
  epilog();
  EXPECT_EQ(note(), "");
  EXPECT_TRUE(fs::exists(directory_ / "notes/job-8"));
  EXPECT_TRUE(runs_.empty());  // the job did not say that it failed
}

TEST_F(FlowTest, TheEpilogLooksAfterFailedJobsNotTooOften) {
  job_.exit_status = 0;
  epilog();
  EXPECT_TRUE(runs_.empty());
  job_.exit_status = 69 << 8;  // whichever code: a hint, no more
  results_ = {passed()};
  epilog();
  EXPECT_EQ(runs_.size(), 1);
  EXPECT_FALSE(slurm_.is_drained("node02"));
  epilog();
  clock_.advance_s(policy_.prolog.epilog_interval_s - 1);
  epilog();
  EXPECT_EQ(runs_.size(), 1);
  clock_.advance_s(2);
  epilog();
  EXPECT_EQ(runs_.size(), 2);
  StateDirectory(policy_.paths.state).update([](State& state) { state.last_epilog_wall_s = 4e9; });
  epilog();  // the clock went back
  EXPECT_EQ(runs_.size(), 3);
  EXPECT_NEAR(state().last_epilog_wall_s, clock_.wall_s(), 1e-3);
}

// Slurm says 0 of a job that was cancelled or requeued; a signal that ended its tasks is the hint then.
TEST_F(FlowTest, TheEpilogLooksAfterJobsThatWereEnded) {
  results_ = {passed()};
  job_.exit_status = 0;
  job_.tasks_killed = true;
  epilog();
  EXPECT_EQ(runs_.size(), 1);
  // A restart that fails here again comes after Slurm's delay, and is looked at.
  clock_.advance_s(121);
  epilog();
  EXPECT_EQ(runs_.size(), 2);
}

TEST_F(FlowTest, TheEpilogDrainsByTheSameRules) {
  job_.exit_status = 1;
  epilog();
  EXPECT_EQ(slurm_.nodes.at("node02").reason, kReason);
  EXPECT_EQ(slurm_.job.admin_comment, "ms-diag: node02 was drained after start 1: gpu.ecc gpu 3: 4 errors");
  EXPECT_EQ(events(), Words{"drain"});
  EXPECT_EQ(note(), "");
  fresh();
  policy_.act.mode = "observe";
  epilog();
  EXPECT_FALSE(slurm_.is_drained("node02"));
  EXPECT_EQ(events(), Words{"would-drain"});
}

class UndrainTest : public FlowTest {
 protected:
  UndrainTest() { slurm_.set_drained("node02", kReason); }
  UndrainResult undrain(bool verified) { return undrain_flow(policy_, "node02", verified, world()); }
};

TEST_F(UndrainTest, OfANodeThatIsWell) {
  results_ = {passed(), passed()};
  results_[1].code = "gpu.ecc";
  StateDirectory(policy_.paths.state)
      .append_history({.wall_s = 1.7e9, .event = "drain", .code = "gpu.ecc", .message = kReason});
  const UndrainResult result = undrain(true);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.text,
            std::string("2 checks ran, none found anything that drains\nnode02 is back; it was drained for: ") +
                kReason + "\n");
  EXPECT_FALSE(slurm_.is_drained("node02"));
  EXPECT_EQ(runs_.at(0).not_before_wall_s, 1.7e9);  // what the kernel said since the drain counts
  EXPECT_NEAR(state().last_undrain_wall_s, clock_.wall_s(), 1e-3);
  EXPECT_EQ(events(), Words{"undrain"});
  EXPECT_EQ(spooled_events(policy_.paths.spool)[0].second.code, "gpu.ecc");
  // The next prolog counts from here, and a relapse is a strike.
  const double undrained_wall_s = clock_.wall_s();
  results_ = {judged({critical("gpu.ecc", "gpu 3", "4 errors")})};
  EXPECT_EQ(prolog(), 69);
  EXPECT_NEAR(runs_.at(1).not_before_wall_s, undrained_wall_s, 1e-3);
  EXPECT_EQ(events(), (Words{"undrain", "drain", "strike"}));
}

// A node that was drained by hand, in the words that ms-diag run prints, has no such event in the history.
TEST_F(UndrainTest, CountsTheLogSinceTheDrainOfSlurm) {
  results_ = {passed(), passed()};
  results_[1].code = "gpu.ecc";
  slurm_.nodes.at("node02").reason_wall_s = 1.75e9;
  EXPECT_EQ(undrain(true).status, 0);
  EXPECT_EQ(runs_.at(0).not_before_wall_s, 1.75e9);
}

// Users, whose runs of ms-diag decide for ms-driver, must not count what the undrain closed.
TEST_F(UndrainTest, IsPublishedForUsers) {
  undrain(false);
  const State published = published_undrain(policy_.paths.notes);
  EXPECT_EQ(published.last_undrain_wall_s, state().last_undrain_wall_s);
  EXPECT_EQ(published.undrain_boot, state().undrain_boot);
  EXPECT_TRUE(published.counters.empty());
  const std::filesystem::path file = directory_ / "notes/undrained";
  EXPECT_EQ(mode_of(file), 0644U);
  // What others may have written is not believed.
  std::filesystem::permissions(file, std::filesystem::perms::others_write, std::filesystem::perm_options::add);
  EXPECT_THROW(published_undrain(policy_.paths.notes), Error);
  std::filesystem::remove(file);
  EXPECT_EQ(published_undrain(policy_.paths.notes).last_undrain_wall_s, 0);
}

TEST_F(UndrainTest, OfANodeThatIsStillBad) {
  const UndrainResult result = undrain(true);
  EXPECT_EQ(result.status, 2);
  EXPECT_NE(result.text.find("critical gpu.ecc gpu 3: 4 errors"), std::string::npos);
  EXPECT_NE(result.text.find("node02 stays drained"), std::string::npos);
  EXPECT_TRUE(slurm_.is_drained("node02"));
  EXPECT_EQ(state().last_undrain_wall_s, 0);
  EXPECT_EQ(undrain(false).status, 0);  // on the operator's own word
  EXPECT_FALSE(slurm_.is_drained("node02"));
}

TEST_F(UndrainTest, VerifiedWantsTheCheckToHaveLooked) {
  struct Row {
    const char* code;
    Result result;
    const char* why;
  };
  Result warned = passed();
  warned.outcome = Outcome::warn;
  Result outside = judged({critical("gpu.ecc", "gpu 3")});
  policy_.act.allow = {"gpu.lost"};  // of today; it was drained under another policy
  const Row rows[] = {{"gpu.ecc", skipped("there is no driver"), "gpu.ecc: skip, there is no driver"},
                      {"gpu.ecc", broken("it crashed"), "gpu.ecc: broken, it crashed"},
                      {"gpu.ecc", outside, "gpu.ecc: critical"},
                      {"gpu.lost", passed(), "gpu.ecc: it did not run"},
                      {"gpu.ecc", warned, ""},
                      {"gpu.ecc", passed(), ""}};
  for (const Row& row : rows) {
    slurm_.set_drained("node02", kReason);
    results_ = {row.result};
    results_[0].code = row.code;
    const UndrainResult result = undrain(true);
    EXPECT_EQ(result.status, *row.why == '\0' ? 0 : 2) << row.why << result.text;
    EXPECT_EQ(slurm_.is_drained("node02"), *row.why != '\0') << row.why;
    EXPECT_NE(result.text.find(row.why), std::string::npos) << result.text;
  }
}

TEST_F(UndrainTest, OnlyOnTheNodeItself) {
  struct Row {
    const char* slurms;
    const char* ours;
    bool same;
  };
  for (const Row& row : {Row{"node02", "node02", true}, Row{"node02.a.org", "node02", true},
                         Row{"node02", "node02.a.org", true}, Row{"node02.a.org", "node02.b.org", false},
                         Row{"node02", "ctl", false}, Row{"host7", "node02", false}, Row{"", "node02", true}}) {
    slurm_.set_drained("node02", kReason);
    slurm_.nodes.at("node02").host = row.slurms;
    host_ = row.ours;
    if (row.same) {
      EXPECT_EQ(undrain(false).status, 0) << row.slurms << row.ours;
      continue;
    }
    try {
      undrain(true);
      FAIL() << row.slurms << row.ours;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "undrain.host");
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_NE(error.hint().find("ms-diag undrain"), std::string::npos);
    }
    EXPECT_TRUE(slurm_.is_drained("node02"));
    EXPECT_TRUE(runs_.empty());
  }
  slurm_.nodes.erase("node02");
  EXPECT_THROW(undrain(false), Error);
}

TEST_F(UndrainTest, OnlyOurOwn) {
  slurm_.set_drained("node02", "rack is moved", "alice");
  const UndrainResult result = undrain(false);
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.text, "node02 was drained by alice: 'rack is moved'; that is not ours to take back\n");
  slurm_.nodes.at("node02") = make_node("node02");
  EXPECT_EQ(undrain(true).text, "node02 is not drained\n");
  EXPECT_EQ(slurm_.num_calls("resume"), 0);
  EXPECT_TRUE(runs_.empty());
}

TEST_F(UndrainTest, WhatChangedMeanwhileIsLeftAlone) {
  int looks = 0;
  slurm_.before = [&](const std::string& call) {
    if (call == "node node02" && ++looks == 1) slurm_.set_drained("node02", "taken by alice", "alice");
  };
  EXPECT_EQ(undrain(false).status, 1);
  EXPECT_EQ(slurm_.nodes.at("node02").reason, "taken by alice");
}

TEST_F(UndrainTest, WithoutMemoryTheNodeStaysDrained) {
  std::ofstream(policy_.paths.state) << "in the way";
  EXPECT_THROW(undrain(false), Error);
  EXPECT_TRUE(slurm_.is_drained("node02"));
}

TEST_F(UndrainTest, WithoutAnAnswerOfSlurmItSaysSo) {
  for (int failing = 0; failing < 3; ++failing) {
    slurm_ = FakeSlurm(4);
    slurm_.set_drained("node02", kReason);
    int number = 0;
    slurm_.before = [&](const std::string&) {
      if (number++ == failing) throw no_answer();
    };
    EXPECT_THROW(undrain(false), Error) << failing;
    EXPECT_TRUE(slurm_.is_drained("node02"));
  }
}

}  // namespace
}  // namespace ms::health
