// The flow around a job, with a Slurm, checks and a clock that are made up, and real directories.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fake_world.h"
#include "health/act/flow.h"
#include "health/act/notes.h"
#include "health/act/spool.h"
#include "health/act/state.h"
#include "support/files.h"
#include "test_files.h"

namespace ms::health {

inline constexpr const char* kReason = "ms-diag:gpu.ecc gpu 3: 4 errors";
inline constexpr const char* kNote = "ms-diag: node02 was drained before start 1: gpu.ecc gpu 3: 4 errors";

class FlowTest : public testing::Test {
 protected:
  FlowTest() {
    policy_.act.mode = "act";
    policy_.act.kill_switch = directory_ / "off";
    policy_.paths.state = directory_ / "state";
    policy_.paths.spool = directory_ / "spool";
    policy_.paths.notes = directory_ / "notes";
    job_.job_id = 7;
    job_.node = "node02";
    job_.nodes = "node[02-03]";
    results_ = {passed(), judged({critical("gpu.ecc", "gpu 3", "4 errors")})};
    results_[1].counters["gpu.ecc gpu 3"] = {4, 1.8e9};
  }

  World world() {
    return {.clock = clock_,
            .random = [] { return 0.5; },
            .log = [this](log::Level, const std::string& line) { lines_.push_back(line); },
            .run_checks =
                [this](const RunOptions& options) {
                  runs_.push_back(options);
                  return results_;
                },
            .slurm = slurm_.commands(),
            .site_facts = [this] { return slurm_.site_facts(); },
            .host = host_,
            .afterwards = [this](std::function<void(const World&)> work) { afterwards_.push_back(std::move(work)); }};
  }
  int prolog() { return prolog_flow(policy_, job_, world()); }
  void epilog() { epilog_flow(policy_, job_, world()); }

  // A node, a history and a log as if nothing had happened.
  void fresh() {
    slurm_ = FakeSlurm(4);
    lines_.clear();
    runs_.clear();
    afterwards_.clear();
    for (const char* name : {"state", "spool", "notes"}) std::filesystem::remove_all(directory_ / name);
  }
  bool said(const std::string& words) const {
    return std::any_of(lines_.begin(), lines_.end(),
                       [&](const std::string& line) { return line.find(words) != std::string::npos; });
  }
  std::vector<std::string> events() const {
    std::vector<std::string> kinds;
    if (!std::filesystem::exists(policy_.paths.spool)) return kinds;
    for (const auto& [name, event] : spooled_events(policy_.paths.spool)) kinds.push_back(event.kind);
    return kinds;
  }
  std::vector<std::string> history() const {
    std::vector<std::string> kinds;
    for (const HistoryEntry& entry : StateDirectory(policy_.paths.state).history()) kinds.push_back(entry.event);
    return kinds;
  }
  State state() const { return StateDirectory(policy_.paths.state).load(); }
  std::string note() const { return read(directory_ / "notes/job-7"); }
  using Words = std::vector<std::string>;

  test::TempDir directory_;
  Policy policy_;
  slurm::JobEnv job_;
  FakeClock clock_;
  FakeSlurm slurm_{4};
  std::vector<Result> results_;
  std::vector<RunOptions> runs_;
  std::vector<std::string> lines_;
  std::string host_ = "node02.cluster";
  std::vector<std::function<void(const World&)>> afterwards_;  // what was left to a later process
};

}  // namespace ms::health
