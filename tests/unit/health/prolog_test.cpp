// The flow around a job, with a Slurm, checks and a clock that are made up, and real directories.
#include "health/act/prolog.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "flow_fixture.h"
#include "support/files.h"

namespace ms::health {
namespace {

namespace fs = std::filesystem;

TEST_F(FlowTest, AHealthyNodeCostsNoQuestionToSlurm) {
  results_ = {passed(), skipped("no GPU"), broken("no idea"), passed()};
  results_[0].counters["net.flaps eth0"] = {2, 1.8e9};
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(slurm_.calls.empty());
  EXPECT_TRUE(said("is broken: no idea"));
  EXPECT_EQ(runs_.at(0).deadline_s, policy_.prolog.deadline_s);
  EXPECT_EQ(state().counters.at("net.flaps eth0").value, 2);
  EXPECT_EQ(prolog(), 0);
  EXPECT_EQ(runs_.at(1).before.at("net.flaps eth0").value, 2);
  EXPECT_TRUE(events().empty());
  EXPECT_FALSE(fs::exists(directory_ / "notes/job-7"));
}

TEST_F(FlowTest, AHealthyNodesStateIsWrittenOnlyWhereSomethingChanged) {
  struct Row {
    double value;
    double later_s;
    bool written;
  };
  const std::string path = directory_ / "state/state.json";
  results_ = {passed()};
  results_[0].counters["net.flaps eth0"] = {2, 1.8e9};
  EXPECT_EQ(prolog(), 0);
  for (const Row& row : {Row{2, 60, false}, Row{2, 3599, false}, Row{2, 3600, true}, Row{3, 3601, true}}) {
    fs::last_write_time(path, {});  // a new file has another time
    results_[0].counters["net.flaps eth0"] = {row.value, 1.8e9 + row.later_s};
    EXPECT_EQ(prolog(), 0);
    EXPECT_EQ(fs::last_write_time(path) != fs::file_time_type{}, row.written) << row.value << ' ' << row.later_s;
  }
  EXPECT_EQ(state().counters.at("net.flaps eth0").value, 3);
  EXPECT_EQ(state().counters.at("net.flaps eth0").wall_s, 1.8e9 + 3601);
}

TEST_F(FlowTest, ABadNodeIsDrainedAndTheJobStartsElsewhere) {
  EXPECT_EQ(prolog(), 69);
  EXPECT_EQ(slurm_.nodes.at("node02").reason, kReason);
  EXPECT_EQ(slurm_.job.admin_comment, kNote);
  EXPECT_EQ(events(), Words{"drain"});
  EXPECT_EQ(history(), (Words{"drain", "finding"}));
  EXPECT_EQ(state().strikes, 1);
  EXPECT_EQ(state().counters.at("gpu.ecc gpu 3").value, 4);
  EXPECT_TRUE(said("drained node02 before job 7"));
  EXPECT_EQ(note(), "");
  const auto event = spooled_events(policy_.paths.spool).at(0).second;
  EXPECT_EQ(event.node, "node02");
  EXPECT_EQ(event.code, "gpu.ecc");
  EXPECT_EQ(event.message, kReason);
  EXPECT_EQ(event.job_id, 7);
}

TEST_F(FlowTest, ObserveOnlyTells) {
  policy_.act.mode = "observe";
  EXPECT_EQ(prolog(), 0);
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(slurm_.calls.empty());
  EXPECT_TRUE(said(std::string("would drain node02, but the policy says observe: ") + kReason));
  EXPECT_EQ(events(), Words{"would-drain"});  // once an hour
  clock_.advance_s(3601);
  EXPECT_EQ(prolog(), 0);
  EXPECT_EQ(events(), (Words{"would-drain", "would-drain"}));
  EXPECT_EQ(state().strikes, 0);
}

TEST_F(FlowTest, TheKillSwitchStopsEverything) {
  std::ofstream(policy_.act.kill_switch) << "";
  job_.exit_status = 256;
  EXPECT_EQ(prolog(), 0);
  epilog();
  fs::remove(policy_.act.kill_switch);
  fs::create_symlink("/nowhere", policy_.act.kill_switch);  // somebody meant it
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(runs_.empty());
  EXPECT_TRUE(slurm_.calls.empty());
  EXPECT_TRUE(said("nothing is checked"));
  policy_.act.kill_switch = std::string(5000, 'x');  // cannot be looked for
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(runs_.empty());
}

TEST_F(FlowTest, OffNeedsTheSitesLeave) {
  job_.preflight = slurm::Preflight::off;
  EXPECT_EQ(prolog(), 69);
  EXPECT_TRUE(said("which the policy does not allow"));
  fresh();
  policy_.act.allow_off = true;
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(runs_.empty());
  EXPECT_TRUE(said("asked for no check"));
}

TEST_F(FlowTest, WhatMayNotDrainOnlyIsRemembered) {
  Finding warning = critical("gpu.ecc", "gpu 3");
  warning.severity = Severity::warning;
  results_ = {judged({warning}), judged({critical("gpu.thermal", "gpu 1")})};
  Result odd = broken("it crashed");  // whatever it left behind does not count
  odd.findings = {critical("gpu.ecc", "gpu 3")};
  results_.push_back(odd);
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(slurm_.calls.empty());
  EXPECT_EQ(history(), (Words{"finding", "finding"}));
  EXPECT_EQ(prolog(), 0);
  EXPECT_EQ(history().size(), 2);  // once an hour
}

TEST_F(FlowTest, AnotherJobsGpuIsLeftAlone) {
  job_.gpus = std::vector<int>{0, 1};
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(slurm_.calls.empty());
}

TEST_F(FlowTest, ASiteThatIsNotReadyIsNotActedOn) {
  slurm_.site.config["SchedulerParameters"] = "";
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(said("act refused"));
  EXPECT_EQ(slurm_.calls, Words{"config"});
  EXPECT_EQ(history(), (Words{"refused", "finding"}));
}

TEST_F(FlowTest, SomebodyElsesNodeIsLeftAlone) {
  slurm_.set_drained("node02", "rack is moved", "alice");
  EXPECT_EQ(prolog(), 0);
  EXPECT_EQ(slurm_.nodes.at("node02").reason, "rack is moved");
  EXPECT_EQ(slurm_.job.admin_comment, "");
  EXPECT_TRUE(said("it has a reason from someone else"));
  EXPECT_TRUE(events().empty());
}

TEST_F(FlowTest, AStandingDrainIsNotRepeatedButTheJobLeaves) {
  slurm_.set_drained("node02", "ms-diag:gpu.lost gpu 1: gone");
  EXPECT_EQ(prolog(), 69);
  EXPECT_EQ(slurm_.num_calls("drain"), 0);
  EXPECT_EQ(slurm_.nodes.at("node02").reason, "ms-diag:gpu.lost gpu 1: gone");
  EXPECT_EQ(slurm_.job.admin_comment, "ms-diag: node02 was drained before start 1: gpu.lost gpu 1: gone");
  EXPECT_TRUE(events().empty());
  EXPECT_EQ(state().strikes, 0);
}

TEST_F(FlowTest, AboveTheCapTheJobStarts) {
  slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
  EXPECT_EQ(prolog(), 0);
  EXPECT_FALSE(slurm_.is_drained("node02"));
  EXPECT_TRUE(said("1 nodes are drained by us, and no more than 1 may be"));
  EXPECT_EQ(history(), (Words{"refused", "finding"}));
  EXPECT_EQ(note(),
            "ms-diag: node02 has gpu.ecc gpu 3: 4 errors\nms-diag: this job runs there all the same: the node was not "
            "drained, 1 nodes are drained by us, and no more than 1 may be\n");
}

TEST_F(FlowTest, WhereNothingIsDrainedTheJobIsToldWhy) {
  const auto told = [&](const std::string& why) {
    return note().starts_with("ms-diag: node02 has gpu.ecc gpu 3: 4 errors\n") && note().find(why) != std::string::npos;
  };
  slurm_.site.config["SchedulerParameters"] = "";
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(told("Slurm is not ready")) << note();
  fresh();
  slurm_.left_s = 0.1;
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(told("too little time")) << note();
  fresh();
  {
    const UniqueFd held = Notes(policy_.paths.notes).try_lock_decision();
    EXPECT_EQ(prolog(), 0);
    EXPECT_TRUE(told("another prolog or epilog")) << note();
  }
  fresh();
  policy_.act.mode = "observe";
  EXPECT_EQ(prolog(), 0);
  EXPECT_EQ(note(), "");
}

// Whatever is done to the clock, lines of the log that the undrain answered do not count again, and new ones do.
TEST_F(FlowTest, AnUndrainHidesTheLogOfBeforeWhereverTheClockIsSet) {
  policy_.paths.sysroot = directory_ / "root";
  const std::string boot = directory_ / "root/proc/sys/kernel/random/boot_id";
  std::filesystem::create_directories(directory_ / "root/proc/sys/kernel/random");
  test::spill(boot, "one\n");
  clock_.advance_s(1000);
  const StateDirectory directory(policy_.paths.state);
  directory.update([&](State& state) { note_undrain(state, Sysroot(policy_.paths.sysroot), clock_); });
  clock_.advance_s(3600);
  for (const double set_wall_s : {1.5e9, 4e9}) {
    directory.update([&](State& state) { state.last_undrain_wall_s = set_wall_s; });
    prolog();
    EXPECT_NEAR(runs_.back().not_before_wall_s, clock_.wall_s() - 3600, 1);
  }
  test::spill(boot, "two\n");
  prolog();
  EXPECT_EQ(runs_.back().not_before_wall_s, 0) << "the log of a later boot is all new";
  directory.update([&](State& state) { state.undrain_boot.clear(); });
  prolog();
  EXPECT_NEAR(runs_.back().not_before_wall_s, clock_.wall_s(), 1)
      << "a boot that is not known, and the clock went back";
}

TEST_F(FlowTest, AWithdrawnDrainIsToldAndCountsNoStrike) {
  slurm_.after = [&](const std::string& call) {
    if (call.starts_with("drain")) slurm_.set_drained("node01", "ms-diag:gpu.lost gpu 1: gone");
  };
  EXPECT_EQ(prolog(), 0);
  EXPECT_FALSE(slurm_.is_drained("node02"));
  EXPECT_EQ(events(), Words{"withdrawn"});
  EXPECT_EQ(state().strikes, 0);
  EXPECT_EQ(slurm_.job.admin_comment, "");
}

TEST_F(FlowTest, ARelapseIsAStrike) {
  EXPECT_EQ(prolog(), 69);
  EXPECT_EQ(events(), Words{"drain"});
  slurm_.nodes.at("node02") = make_node("node02");  // somebody resumed it
  EXPECT_EQ(prolog(), 69);
  EXPECT_EQ(events(), (Words{"drain", "drain", "strike"}));
  EXPECT_EQ(state().strikes, 2);
  const auto event = spooled_events(policy_.paths.spool).at(2).second;
  EXPECT_EQ(event.strikes, 2);
  EXPECT_TRUE(said("strike 2"));
}

TEST_F(FlowTest, AJobThatCannotStartAgainRunsAndIsTold) {
  struct Row {
    const char* name;
    std::function<void(slurm::Job&)> change;
  };
  const Row rows[] = {{"it is no batch job", [](slurm::Job& job) { job.batch = false; }},
                      {"--no-requeue", [](slurm::Job& job) { job.requeue = false; }},
                      {"Slurm would hold it", [](slurm::Job& job) { job.restarts = 5; }}};
  for (const Row& row : rows) {
    fresh();
    job_.preflight = slurm::Preflight::by_default;
    row.change(slurm_.job);
    EXPECT_EQ(prolog(), 0) << row.name;
    EXPECT_TRUE(slurm_.is_drained("node02"));
    EXPECT_EQ(slurm_.job.admin_comment, kNote);
    EXPECT_TRUE(note().starts_with(std::string(kNote) + "\nms-diag: this job runs there all the same: ")) << note();
    EXPECT_NE(note().find(row.name), std::string::npos) << note();
    fresh();
    row.change(slurm_.job);
    job_.preflight = slurm::Preflight::require;
    EXPECT_EQ(prolog(), 69) << row.name;
    EXPECT_EQ(note(), "");
    // Where the user looks: srun and salloc print it, of a batch job the comment has it.
    EXPECT_EQ(slurm_.num_calls("notify 7 " + std::string(kNote)), slurm_.job.batch ? 0 : 1);
    EXPECT_EQ(slurm_.num_calls("notify 7 ms-diag: this job ends before it began"), slurm_.job.batch ? 0 : 1);
    EXPECT_TRUE(slurm_.job.admin_comment.starts_with(std::string(kNote) + "; ms-diag: this job ends before it began"))
        << slurm_.job.admin_comment;
    EXPECT_NE(slurm_.job.admin_comment.find(row.name), std::string::npos) << slurm_.job.admin_comment;
  }
}

TEST_F(FlowTest, ARestartedJobIsToldWhyOnItsFirstNodeOnly) {
  results_ = {passed()};
  slurm_.job.admin_comment = std::string("ticket 5; ") + kNote;
  job_.restarts = 1;
  EXPECT_EQ(prolog(), 0);
  EXPECT_EQ(note(), std::string(kNote) + "\n");
  EXPECT_EQ(slurm_.calls, Words{"job 7"});
  fresh();
  job_.node = "node03";
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(slurm_.calls.empty());
  EXPECT_EQ(note(), "");
  fresh();
  job_.node = "node02";
  slurm_.before = [](const std::string&) { throw no_answer(); };
  EXPECT_EQ(prolog(), 0);
  EXPECT_EQ(note(), "");
}

TEST_F(FlowTest, EveryCallThatFailsLetsTheJobStartAndDoesNoHarm) {
  ASSERT_EQ(prolog(), 69);
  const Words all = slurm_.calls;
  ASSERT_GE(all.size(), 7);
  for (const bool obeyed : {false, true}) {
    for (std::size_t failing = 0; failing < all.size(); ++failing) {
      fresh();
      std::size_t number = 0;
      (obeyed ? slurm_.after : slurm_.before) = [&](const std::string&) {
        if (number++ == failing) throw no_answer();
      };
      const int code = prolog();
      const bool drained = slurm_.is_drained("node02");
      const std::string where = fmt::format("{}{}", all[failing], obeyed ? ", obeyed" : "");
      if (code != 0) {
        EXPECT_TRUE(drained) << where;  // the one thing that may never be: failed on a node that is not drained
      }
      // What comes before the drain is counted undoes it; the comment at the end does not matter.
      const bool in_time = failing <= 3;
      EXPECT_EQ(drained, !in_time) << where;
      const bool only_comment = failing >= 6;
      EXPECT_EQ(code, only_comment ? 69 : 0) << where;
      EXPECT_TRUE(said("no answer in time")) << where;
    }
  }
}

TEST_F(FlowTest, ASlurmThatNeverAnswersLetsTheJobStart) {
  slurm_.before = [](const std::string&) { throw no_answer(); };
  job_.restarts = 1;
  EXPECT_EQ(prolog(), 0);
  job_.exit_status = 1;
  EXPECT_NO_THROW(epilog());
  EXPECT_EQ(slurm_.num_drained(), 0);
}

TEST_F(FlowTest, ADrainThatDoesNotStandWhenTheJobWouldFailLetsItStart) {
  slurm_.after = [&](const std::string& call) {
    if (call.starts_with("job")) slurm_.nodes.at("node02") = make_node("node02");  // an operator was quick
  };
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(said("no drain of ours is seen to stand"));
}

TEST_F(FlowTest, OnlyOneProcessOfANodeDecides) {
  const UniqueFd held = Notes(policy_.paths.notes).try_lock_decision();
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(slurm_.calls.empty());
  EXPECT_TRUE(said("another prolog or epilog of this node has not finished"));
  EXPECT_LT(clock_.now_s(), 2);
}

TEST_F(FlowTest, DirectoriesThatCannotBeUsedStopNothing) {
  for (const char* name : {"state", "spool", "notes"}) {
    fresh();
    std::ofstream(directory_ / name) << "in the way";
    EXPECT_EQ(prolog(), 69) << name;
    EXPECT_TRUE(slurm_.is_drained("node02")) << name;
    job_.exit_status = 1;
    EXPECT_NO_THROW(epilog()) << name;
    job_.exit_status.reset();
  }
  fresh();
  for (const char* name : {"state", "spool", "notes"}) std::ofstream(directory_ / name) << "in the way";
  results_ = {passed()};
  job_.restarts = 1;
  slurm_.job.admin_comment = kNote;
  EXPECT_EQ(prolog(), 0);
  EXPECT_TRUE(said("the job is not told"));
}

TEST_F(FlowTest, NothingOfADeviceReachesTheLogRaw) {
  results_ = {judged({critical("gpu.ecc", "gpu 3\x1b[2J", "bad\nfake line\xff")}), broken("odd\r\n\x07 words")};
  prolog();
  for (const std::string& line : lines_) {
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
  }
  for (const std::string& call : slurm_.calls) {
    for (const char c : call) EXPECT_TRUE(c >= ' ' && c <= '~') << call;
  }
}

TEST_F(FlowTest, TwoNodesThatAppendAtOnceBothGetIntoTheComment) {
  bool once = true;
  slurm_.after = [&](const std::string& call) {
    if (!call.starts_with("comment") || !once) return;
    once = false;
    slurm_.job.admin_comment = "ms-diag: node03 was drained before start 1: x";  // read before ours was there
  };
  EXPECT_EQ(prolog(), 69);
  EXPECT_EQ(slurm_.job.admin_comment, std::string("ms-diag: node03 was drained before start 1: x; ") + kNote);
}

// The whole, with the real world behind it: nothing of it may leave as an exception or a code but 0.
TEST(RunProlog, WithoutAPolicyThatRootMayBelieveNothingIsDone) {
  const test::TempDir directory;
  slurm::JobEnv job;
  job.job_id = 7;
  job.node = "node02";
  job.exit_status = 1;
  const std::string path = directory / "ms-diag.toml";
  const auto both = [&] { return run_prolog(path, job) + run_epilog(path, job); };
  EXPECT_EQ(both(), 0);  // there is none
  std::ofstream(path) << "[act]\nmode = \"kill\"\n";
  EXPECT_EQ(both(), 0);
  std::ofstream(path) << "[act]\nmode = \"act\"\n";
  ::chmod(path.c_str(), 0666);
  EXPECT_EQ(both(), 0);
  EXPECT_EQ(run_prolog("", job), 0);
  EXPECT_EQ(run_prolog("relative", job), 0);
}

}  // namespace
}  // namespace ms::health
