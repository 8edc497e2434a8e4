// The what-if analysis: on steps whose answer can be worked out by hand, and on two real traces with published answers,
// which are read from ../shared/data/stragglers (its README.md says whose they are).
#include "tracepp/findings/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "tracepp/read/read.h"
#include "tracepp/steps/straggler_timeline.h"

namespace ms::tracepp {
namespace {

namespace fs = std::filesystem;

class Published : public testing::TestWithParam<std::string> {
 protected:
  static fs::path folder() { return fs::path(MS_SOURCE_DIR) / "../shared/data/stragglers"; }
  static nlohmann::json read(const std::string& name) {
    return nlohmann::json::parse(read_file(folder() / name, Blame::user));
  }
};

TEST_P(Published, ReproducesThePublishedResults) {
  if (!fs::exists(folder())) GTEST_SKIP() << "../shared/data/stragglers is not here";
  const StepTrace trace = straggler_steps(read_run({folder() / ("timeline-" + GetParam() + ".json.gz")}));
  const auto begin = std::chrono::steady_clock::now();
  const Stragglers found = find_stragglers(trace);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%s: S %.5f, M_W %.5f, M_S %.5f in %.1f ms\n", GetParam().c_str(), found.S, found.M_W, found.M_S,
              1e3 * seconds.count());

  const nlohmann::json result = read("result-" + GetParam() + ".json");
  EXPECT_NEAR(found.S, result["blocking_slowdown"].get<double>(), 1e-5);
  EXPECT_NEAR(found.M_W, read("mw-" + GetParam() + ".json")["Mw"].get<double>(), 1e-5);
  EXPECT_NEAR(found.M_S, read("ms-" + GetParam() + ".json")["Ms"].get<double>(), 1e-5);
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const std::string step = std::to_string(trace.steps[i]);
    EXPECT_NEAR(found.step_slowdowns[i], result["blocking_step_slowdown"][step].get<double>(), 1e-5) << step;
  }
  const auto published = [&](const std::string& part, int key) {
    for (const auto& [name, value] : result["blocking_decompose_by_" + part].items()) {
      if (std::stoi(name) == key) return value.get<double>();
    }
    ADD_FAILURE() << part << " " << key;
    return 0.0;
  };
  for (int dp = 0; dp < trace.dp; ++dp) {
    EXPECT_NEAR(found.by_dp[static_cast<std::size_t>(dp)].slowdown, published("dp_rank", dp), 1e-5);
  }
  for (int stage = 0; stage < trace.pp; ++stage) {
    EXPECT_NEAR(found.by_stage[static_cast<std::size_t>(stage)].slowdown, published("stage", stage), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, Published, testing::Values("AR", "ST"), [](const auto& trace) { return trace.param; });

// How much longer computations take: [stage][dp rank].
using Slowness = std::array<std::array<double, 2>, 2>;

// A pipeline of two stages and dp 2, one microbatch: forward 1 s, backward 2 s, transfers 0.1 s, nothing else takes
// time. What is slow makes all later that comes behind it.
StepTrace two_stages(const Slowness& slow = {{{1, 1}, {1, 1}}}) {
  StepTrace trace;
  trace.dp = trace.pp = 2;
  trace.steps = {7, 8};
  trace.ranks = {0, 1, 2, 3};
  struct Times {
    double start, end;
  };
  const auto add = [&](OpType type, int stage, auto&& times) {
    trace.ops.push_back({type, 0, stage, 0});
    for (std::size_t step = 0; step < trace.steps.size(); ++step) {
      for (std::size_t dp = 0; dp < 2; ++dp) {
        const Times at = times(slow[0][dp], slow[1][dp]);  // of the first and the second stage
        trace.start_s.push_back(at.start + 100.0 * static_cast<double>(step));
        trace.duration_s.push_back(at.end - at.start);
      }
    }
  };
  const auto turn = [](double a, double b) { return a + 0.1 + 3 * b; };  // the second stage's backward has ended
  const auto end = [&](double a, double b) { return turn(a, b) + 0.1 + 2 * a; };
  add(OpType::forward_compute, 0, [](double a, double) { return Times{0, a}; });
  add(OpType::forward_send, 0, [](double a, double) { return Times{a, a + 0.1}; });
  add(OpType::forward_recv, 1, [](double a, double) { return Times{0, a + 0.1}; });  // launched early, waits
  add(OpType::forward_compute, 1, [](double a, double b) { return Times{a + 0.1, a + 0.1 + b}; });
  add(OpType::backward_compute, 1, [&](double a, double b) { return Times{a + 0.1 + b, turn(a, b)}; });
  add(OpType::backward_send, 1, [&](double a, double b) { return Times{turn(a, b), turn(a, b) + 0.1}; });
  add(OpType::backward_recv, 0, [&](double a, double b) { return Times{a, turn(a, b) + 0.1}; });
  add(OpType::backward_compute, 0, [&](double a, double b) { return Times{turn(a, b) + 0.1, end(a, b)}; });
  for (int stage = 0; stage < 2; ++stage) {
    add(OpType::optimizer_clip_main_grad, stage, [&](double a, double b) {
      return Times{stage == 0 ? end(a, b) : turn(a, b), end(a, b)};
    });
    add(OpType::optimizer, stage, [&](double a, double b) { return Times{end(a, b), end(a, b) + 0.5}; });
  }
  return trace;
}

TEST(Stragglers, AHealthyRunHasNone) {
  const Stragglers found = find_stragglers(two_stages());
  EXPECT_NEAR(found.ideal_s, 6.7, 1e-9);  // 1 + 0.1 + 1 + 2 + 0.1 + 2 + 0.5
  EXPECT_NEAR(found.S, 1, 1e-9);
  EXPECT_NEAR(found.launch_slowdown, 1, 1e-9);
  for (const Suspect& worker : found.workers) EXPECT_NEAR(worker.score, 1, 1e-9);
}

TEST(Stragglers, ASlowWorkerIsTheWorst) {
  for (const int stage : {0, 1}) {
    for (const int dp : {0, 1}) {
      Slowness slow{{{1, 1}, {1, 1}}};
      slow[static_cast<std::size_t>(stage)][static_cast<std::size_t>(dp)] = 1.5;
      const Stragglers found = find_stragglers(two_stages(slow));
      EXPECT_GT(found.S, 1.05);
      EXPECT_EQ(found.workers.front().pp, stage);
      EXPECT_EQ(found.workers.front().dp, dp);
      EXPECT_EQ(found.workers.front().rank, stage * 2 + dp);
      EXPECT_GT(found.workers.front().score, found.workers[1].score + 0.03);
      // The mean of four, of which one is slow, is 1.125: 8.2 s as measured, 7.075 s without the slow one, 7.45 s
      // ideal.
      EXPECT_NEAR(found.M_W, (8.2 - 7.075) / (8.2 - 7.45), 1e-9);
    }
  }
}

TEST(Stragglers, AHeavyLastStageIsNamed) {
  const Stragglers found = find_stragglers(two_stages({{{1, 1}, {1.5, 1.5}}}));
  EXPECT_GT(found.by_stage[1].slowdown, found.by_stage[0].slowdown + 0.1);
  EXPECT_NEAR(found.by_dp[0].slowdown, found.by_dp[1].slowdown, 1e-9);
}

TEST(StepGraph, RefusesInvalidSteps) {
  const auto expect_refused = [](const char* message, auto&& damage) {
    StepTrace trace = two_stages();
    damage(trace);
    try {
      find_stragglers(trace);
      ADD_FAILURE() << "accepted: " << message;
    } catch (const Error& error) { EXPECT_THAT(error.what(), testing::HasSubstr(message)); }
  };
  const auto without = [](OpType type, int stage) {
    return [=](StepTrace& trace) {
      for (std::size_t op = 0; op < trace.ops.size(); ++op) {
        if (trace.ops[op].type != type || trace.ops[op].stage != stage) continue;
        const auto first = static_cast<std::ptrdiff_t>(op * trace.lanes()),
                   last = first + static_cast<std::ptrdiff_t>(trace.lanes());
        trace.ops.erase(trace.ops.begin() + static_cast<std::ptrdiff_t>(op));
        trace.start_s.erase(trace.start_s.begin() + first, trace.start_s.begin() + last);
        trace.duration_s.erase(trace.duration_s.begin() + first, trace.duration_s.begin() + last);
        return;
      }
    };
  };
  expect_refused("stage 1 of the trace has no optimizer", without(OpType::optimizer, 1));
  expect_refused("stage 0 of the trace has no forward-compute", without(OpType::forward_compute, 0));
  expect_refused("stage 0 has 1 forward-send, but stage 1 has 0 forward-recv", without(OpType::forward_recv, 1));
}

}  // namespace
}  // namespace ms::tracepp
