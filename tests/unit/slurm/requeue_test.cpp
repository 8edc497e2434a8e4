// A requeue without bad nodes, against a Slurm that refuses or loses what it is told to: whatever fails, the job is not
// left held.
#include "slurm/requeue.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace ms::slurm {
namespace {

// How a request fails: refused, or obeyed with the answer lost.
struct Failure {
  int times = 0;  // the first so many
  bool obeyed = false;
};

class FakeSlurm : public Commands {
 public:
  FakeSlurm() : Commands(CommandOptions{}) {
    state_.id = 7;
    state_.state = "RUNNING";
    state_.excluded_nodes = "node[01-02]";
    state_.priority = 100;
  }

  Job job(std::uint32_t id) const override {
    request("job", [] {});
    EXPECT_EQ(id, 7U);
    if (state_.state == "COMPLETING" && looks_until_pending_-- <= 0) state_.state = "PENDING";
    return state_;
  }
  void requeue_hold(std::uint32_t) const override {
    request("hold", [&] {
      state_.state = "COMPLETING";
      state_.priority = 0;
      looks_until_pending_ = 3;
    });
  }
  void set_excluded_nodes(std::uint32_t, const std::string& hostlist) const override {
    request("exclude", [&] {
      if (state_.runs()) throw Error("slurm.command", Blame::slurm, "Job is no longer pending execution");
      state_.excluded_nodes = hostlist;
    });
  }
  void release(std::uint32_t) const override {
    request("release", [&] { state_.priority = 100; });
  }
  void start_now(std::uint32_t) const override {
    request("start", [&] {
      EXPECT_TRUE(state_.pending());
      state_.state = "RUNNING";
    });
  }

  std::map<std::string, Failure> failures;
  Job& state() { return state_; }
  const std::string& log() const { return log_; }

 private:
  template <class Step>
  void request(const std::string& name, Step&& step) const {
    log_ += name + ' ';
    const auto failure = failures.find(name);
    const bool fails = failure != failures.end() && calls_[name]++ < failure->second.times;
    if (!fails || failure->second.obeyed) step();
    if (fails) throw Error("slurm.command", Blame::slurm, name + " failed");
  }
  mutable Job state_;
  mutable std::string log_;
  mutable std::map<std::string, int> calls_;
  mutable int looks_until_pending_ = 0;
};

constexpr int kAlways = 1 << 30;

struct Try {
  RequeueDone done;
  std::string message;  // of the error, if any
  std::string hint;
  double took_s = 0;
};

Try requeue(const FakeSlurm& slurm, RequeueOptions options = {}, const std::vector<std::string>& nodes = {"node03"}) {
  Try result;
  FakeClock clock;
  try {
    result.done = requeue_excluding(slurm, 7, nodes, options, clock);
  } catch (const Error& error) {
    result.message = error.message();
    result.hint = error.hint();
  }
  result.took_s = clock.now_s();
  return result;
}

TEST(Requeue, HoldsMergesReleases) {
  FakeSlurm slurm;
  const Try result = requeue(slurm);
  EXPECT_EQ(result.message, "");
  EXPECT_FALSE(result.done.start_advanced);
  EXPECT_EQ(slurm.log(), "job hold job exclude release ");
  EXPECT_EQ(slurm.state().excluded_nodes, "node[01-03]");
  EXPECT_FALSE(slurm.state().held());
}

TEST(Requeue, StartsAtOnceWhenNothingOfItRunsAnyMore) {
  FakeSlurm slurm;
  const Try result = requeue(slurm, {.start_now = true});
  EXPECT_TRUE(result.done.start_advanced);
  EXPECT_EQ(slurm.state().state, "RUNNING");
}

TEST(Requeue, StartingAtOnceIsNoReasonToFail) {
  FakeSlurm slurm;
  slurm.failures["start"] = {kAlways};
  const Try result = requeue(slurm, {.start_now = true});
  EXPECT_EQ(result.message, "");
  EXPECT_FALSE(result.done.start_advanced);
  EXPECT_LE(result.took_s, 11);
}

// A node of the job does not answer for a while: that is waited for, and nothing is asked of Slurm before.
TEST(Requeue, WaitsForNodesThatDoNotAnswer) {
  FakeSlurm slurm;
  int asked = 0;
  std::string said;
  RequeueOptions options{.silent = [&](const std::string&) -> std::vector<std::string> {
                           EXPECT_EQ(slurm.log().find("hold"), std::string::npos);
                           if (++asked > 3) return {};
                           return {"node03"};
                         },
                         .say = [&](const std::string& text) { said += text; }};
  const Try result = requeue(slurm, options);
  EXPECT_EQ(result.message, "");
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(slurm.state().excluded_nodes, "node[01-03]");
  EXPECT_NE(said.find("node03 does not answer"), std::string::npos);
}

TEST(Requeue, SlurmRequeuesTheJobOfANodeThatIsGone) {
  FakeSlurm slurm;
  int asked = 0;
  const RequeueOptions options{.silent = [&](const std::string&) -> std::vector<std::string> {
    if (++asked == 3) slurm.state().state = "COMPLETING";  // Slurm has seen it
    return {"node03"};
  }};
  EXPECT_EQ(requeue(slurm, options).message, "");
  EXPECT_EQ(slurm.log().find("hold"), std::string::npos);
  EXPECT_EQ(slurm.state().excluded_nodes, "node[01-03]");
}

TEST(Requeue, WhatSlurmStillSeesIsRequeuedInTheEnd) {
  FakeSlurm slurm;
  const RequeueOptions options{.silent = [](const std::string&) { return std::vector<std::string>{"node03"}; }};
  const Try result = requeue(slurm, options);
  EXPECT_EQ(result.message, "");
  EXPECT_GE(result.took_s, options.silent_s);
  EXPECT_EQ(slurm.state().excluded_nodes, "node[01-03]");
}

TEST(Requeue, APendingJobOnlyGetsTheList) {
  FakeSlurm slurm;
  slurm.state().state = "PENDING";
  slurm.state().priority = 0;  // its owner holds it
  EXPECT_EQ(requeue(slurm).message, "");
  EXPECT_EQ(slurm.state().excluded_nodes, "node[01-03]");
  EXPECT_EQ(slurm.log(), "job job exclude ");
  EXPECT_TRUE(slurm.state().held());
}

// Every step fails for a while, or its answer is lost: the same end.
TEST(Requeue, RepeatsWhatFails) {
  for (const char* step : {"exclude", "release"}) {
    for (bool obeyed : {false, true}) {
      FakeSlurm slurm;
      slurm.failures[step] = {3, obeyed};
      EXPECT_EQ(requeue(slurm).message, "") << step;
      EXPECT_EQ(slurm.state().excluded_nodes, "node[01-03]") << step;
      EXPECT_FALSE(slurm.state().held()) << step;
    }
  }
  FakeSlurm slurm;
  slurm.failures["hold"] = {1, true};
  EXPECT_EQ(requeue(slurm).message, "");
  EXPECT_EQ(slurm.state().excluded_nodes, "node[01-03]");
  EXPECT_FALSE(slurm.state().held());
}

TEST(Requeue, WithoutAJobNothingIsDone) {
  FakeSlurm slurm;
  slurm.failures["job"] = {kAlways};
  EXPECT_EQ(requeue(slurm).message, "job failed");
  EXPECT_EQ(slurm.log(), "job ");
}

TEST(Requeue, ARefusedHoldLeavesTheJobRunning) {
  FakeSlurm slurm;
  slurm.failures["hold"] = {kAlways};
  EXPECT_EQ(requeue(slurm).message, "hold failed");
  EXPECT_EQ(slurm.log(), "job hold job ");
  EXPECT_EQ(slurm.state().state, "RUNNING");
}

TEST(Requeue, ARefusedHoldOfAFinishedJobIsTheFailure) {
  FakeSlurm slurm;
  slurm.state().state = "COMPLETED";
  slurm.failures["hold"] = {kAlways};
  EXPECT_EQ(requeue(slurm).message, "hold failed");
  EXPECT_EQ(slurm.state().excluded_nodes, "node[01-02]");
}

// The list cannot be set: released, and reported.
TEST(Requeue, AJobWithoutItsListIsReleasedAndReported) {
  FakeSlurm slurm;
  slurm.failures["exclude"] = {kAlways};
  const Try result = requeue(slurm);
  EXPECT_EQ(result.message, "job 7 is requeued, but node03 is not excluded: exclude failed");
  EXPECT_FALSE(slurm.state().held());
  EXPECT_LE(result.took_s, 6);
}

TEST(Requeue, AJobThatDoesNotStopIsReleasedAndReported) {
  class Stubborn : public FakeSlurm {
    Job job(std::uint32_t id) const override {
      Job job = FakeSlurm::job(id);
      job.state = "RUNNING";
      return job;
    }
  };
  Stubborn slurm;
  const Try result = requeue(slurm);
  EXPECT_EQ(result.message, "job 7 is requeued, but node03 is not excluded: job 7 still runs, it is RUNNING");
  EXPECT_EQ(slurm.log().find("exclude"), std::string::npos);
  EXPECT_FALSE(slurm.state().held());
  EXPECT_LE(result.took_s, 6);
}

// Slurm dies for good behind each step in turn. A hold that nobody can take back is said so.
TEST(Requeue, SaysSoWhenTheJobMayStayHeld) {
  for (bool obeyed : {false, true}) {
    FakeSlurm slurm;
    slurm.failures["release"] = {kAlways, obeyed};
    const Try result = requeue(slurm);
    EXPECT_EQ(slurm.state().held(), !obeyed);
    EXPECT_EQ(result.message, obeyed ? "" : "job 7 may be held: release failed");
    EXPECT_EQ(result.hint, obeyed ? "" : "scontrol release 7");
    EXPECT_LE(result.took_s, 6);
  }
  class DiesAfterHold : public FakeSlurm {
   public:
    void requeue_hold(std::uint32_t id) const override {
      FakeSlurm::requeue_hold(id);
      dead_ = true;
      throw Error("slurm.command", Blame::slurm, "no answer");
    }
    Job job(std::uint32_t id) const override {
      if (dead_) throw Error("slurm.command", Blame::slurm, "no answer");
      return FakeSlurm::job(id);
    }

   private:
    mutable bool dead_ = false;
  };
  DiesAfterHold blind;  // but release still works
  EXPECT_EQ(requeue(blind).message, "no answer");
  EXPECT_FALSE(blind.state().held());
  DiesAfterHold dead;
  dead.failures["release"] = {kAlways};
  EXPECT_EQ(requeue(dead).message, "job 7 may be held: no answer");
  EXPECT_EQ(requeue(dead).message, "no answer");  // asked again, it is not even found
}

TEST(Requeue, OfAJobThatSlurmStartsAgainItselfNothingIsChanged) {
  FakeSlurm slurm;
  slurm.state().state = kExpediting;
  std::string said;
  EXPECT_EQ(requeue(slurm, {.say = [&](const std::string& text) { said += text; }}).message, "");
  EXPECT_EQ(slurm.state().excluded_nodes, "node[01-02]");
  EXPECT_EQ(slurm.log().find("exclude"), std::string::npos);
  EXPECT_NE(said, "");
}

TEST(Requeue, RefusesWhatIsNoHostName) {
  for (const char* node : {"", "node[01-02]", "a b", "a,b", "$(reboot)", "ALL nodes"}) {
    FakeSlurm slurm;
    EXPECT_NE(requeue(slurm, {}, {node}).message, "") << node;
    EXPECT_EQ(slurm.log(), "") << node;
  }
}

TEST(Requeue, MergesLists) {
  EXPECT_EQ(merge_excluded("", {"node02"}), "node02");
  EXPECT_EQ(merge_excluded("node[01-02]", {"node02", "node03"}), "node[01-03]");
  EXPECT_EQ(merge_excluded("node01", {}), "node01");
  EXPECT_EQ(merge_excluded("node01, odd[", {"node03"}), "node01, odd[,node03");
}

}  // namespace
}  // namespace ms::slurm
