// The what-if analysis: on steps whose answer can be worked out by hand, and on two real traces with published answers,
// which are read from ../shared/data/stragglers (its README.md says whose they are).
#include "tracepp/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace ms::tracepp {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string unzipped(const fs::path& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  char buffer[1 << 16];
  for (int count = 0; (count = gzread(file, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  gzclose(file);
  return text;
}

// pid is the dp rank; tid 5 * rank + lane, and named "PP rank 1, TP rank 0, compute".
StepTrace read_timeline(const fs::path& path) {
  const json events = json::parse(unzipped(path));
  StepTrace trace;
  std::map<std::pair<int, int>, int> stages;  // by pid and tid
  std::map<std::int64_t, std::size_t> steps;
  for (const json& event : events) {
    if (event["ph"] == "X") {
      trace.dp = std::max(trace.dp, event["pid"].get<int>() + 1);
      steps[event["args"]["step"].get<std::int64_t>()] = 0;
    } else if (event["name"] == "thread_name") {
      int stage = 0;
      EXPECT_EQ(std::sscanf(event["args"]["name"].get<std::string>().c_str(), "PP rank %d,", &stage), 1);
      stages[{event["pid"], event["tid"]}] = stage;
      trace.pp = std::max(trace.pp, stage + 1);
    }
  }
  for (auto& [step, index] : steps) {
    index = trace.steps.size();
    trace.steps.push_back(step);
  }
  trace.ranks.assign(static_cast<std::size_t>(trace.pp * trace.dp), -1);
  std::map<std::tuple<int, int, int>, std::size_t> ops;  // by stage, type, sequence
  for (const json& event : events) {
    if (event["ph"] != "X") continue;
    const OpType type = op_type(event["name"].get<std::string>()).value();
    const int dp = event["pid"], tid = event["tid"], stage = stages.at({dp, tid}), sequence = event["args"]["seq_id"];
    const auto [it, is_new] = ops.try_emplace({stage, static_cast<int>(type), sequence}, ops.size());
    if (is_new) {
      trace.ops.push_back({type, sequence, stage, event["args"]["model_chunk"]});
      trace.start_s.resize(ops.size() * trace.lanes(), std::numeric_limits<double>::quiet_NaN());
      trace.duration_s.resize(trace.start_s.size(), std::numeric_limits<double>::quiet_NaN());
    }
    const std::size_t at = trace.at(it->second, steps.at(event["args"]["step"].get<std::int64_t>()), dp);
    trace.start_s[at] = event["ts"].get<double>() * 1e-6;
    trace.duration_s[at] = event["dur"].get<double>() * 1e-6;
    trace.ranks[static_cast<std::size_t>(stage * trace.dp + dp)] = tid / 5;
  }
  return trace;
}

class Published : public testing::TestWithParam<std::string> {
 protected:
  static fs::path folder() { return fs::path(MS_SOURCE_DIR) / "../shared/data/stragglers"; }
  static json read(const std::string& name) { return json::parse(read_file(folder() / name, Blame::user)); }
};

TEST_P(Published, AnswersAreReproduced) {
  if (!fs::exists(folder())) GTEST_SKIP() << "../shared/data/stragglers is not here";
  const StepTrace trace = read_timeline(folder() / ("timeline-" + GetParam() + ".json.gz"));
  const auto begin = std::chrono::steady_clock::now();
  const Stragglers found = find_stragglers(trace);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%s: S %.5f, M_W %.5f, M_S %.5f in %.1f ms\n", GetParam().c_str(), found.S, found.M_W, found.M_S,
              1e3 * seconds.count());

  const json result = read("result-" + GetParam() + ".json");
  EXPECT_NEAR(found.S, result["blocking_slowdown"].get<double>(), 1e-5);
  EXPECT_NEAR(found.M_W, read("mw-" + GetParam() + ".json")["Mw"].get<double>(), 1e-5);
  EXPECT_NEAR(found.M_S, read("ms-" + GetParam() + ".json")["Ms"].get<double>(), 1e-5);
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const std::string step = std::to_string(trace.steps[i]);
    EXPECT_NEAR(found.step_slowdowns[i], result["blocking_step_slowdown"][step].get<double>(), 1e-5) << step;
  }
  const auto published = [&](const std::string& what, int key) {
    for (const auto& [name, value] : result["blocking_decompose_by_" + what].items()) {
      if (std::stoi(name) == key) return value.get<double>();
    }
    ADD_FAILURE() << what << " " << key;
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

// A pipeline of two stages and dp 2, one microbatch: forward 1 s, backward 2 s, transfers 0.1 s, nothing else takes
// time.
StepTrace two_stages() {
  StepTrace trace{
      .dp = 2, .pp = 2, .tp = 1, .steps = {7, 8}, .ops = {}, .start_s = {}, .duration_s = {}, .ranks = {0, 1, 2, 3}};
  const auto add = [&](OpType type, int stage, double start, double duration) {
    trace.ops.push_back({type, 0, stage, 0});
    for (std::size_t step = 0; step < trace.steps.size(); ++step) {
      for (int dp = 0; dp < trace.dp; ++dp) {
        trace.start_s.push_back(start + 100.0 * static_cast<double>(step));
        trace.duration_s.push_back(duration);
      }
    }
  };
  add(OpType::forward_compute, 0, 0, 1);
  add(OpType::forward_send, 0, 1, 0.1);
  add(OpType::forward_recv, 1, 0, 1.1);  // launched early, waits
  add(OpType::forward_compute, 1, 1.1, 1);
  add(OpType::backward_compute, 1, 2.1, 2);
  add(OpType::backward_send, 1, 4.1, 0.1);
  add(OpType::backward_recv, 0, 1, 3.2);
  add(OpType::backward_compute, 0, 4.2, 2);
  for (int stage = 0; stage < 2; ++stage) {
    add(OpType::optimizer_clip_main_grad, stage, stage == 0 ? 6.2 : 4.1, stage == 0 ? 0 : 2.1);
    add(OpType::optimizer, stage, 6.2, 0.5);
  }
  return trace;
}

void slow_down(StepTrace& trace, OpType type, int stage, int dp, double factor) {
  for (std::size_t op = 0; op < trace.ops.size(); ++op) {
    if (trace.ops[op].type != type || trace.ops[op].stage != stage) continue;
    for (std::size_t step = 0; step < trace.steps.size(); ++step) trace.duration_s[trace.at(op, step, dp)] *= factor;
  }
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
      StepTrace trace = two_stages();
      slow_down(trace, OpType::forward_compute, stage, dp, 1.5);
      slow_down(trace, OpType::backward_compute, stage, dp, 1.5);
      const Stragglers found = find_stragglers(trace);
      EXPECT_GT(found.S, 1.05);
      EXPECT_EQ(found.workers.front().pp, stage);
      EXPECT_EQ(found.workers.front().dp, dp);
      EXPECT_EQ(found.workers.front().rank, stage * 2 + dp);
      EXPECT_GT(found.workers.front().score, found.workers[1].score + 0.03);
      EXPECT_NEAR(found.M_W, 1, 0.25);
    }
  }
}

TEST(Stragglers, AHeavyLastStageIsNamed) {
  StepTrace trace = two_stages();
  for (const int dp : {0, 1}) {
    slow_down(trace, OpType::forward_compute, 1, dp, 1.5);
    slow_down(trace, OpType::backward_compute, 1, dp, 1.5);
  }
  const Stragglers found = find_stragglers(trace);
  EXPECT_GT(found.by_stage[1].slowdown, found.by_stage[0].slowdown + 0.1);
  EXPECT_NEAR(found.by_dp[0].slowdown, found.by_dp[1].slowdown, 1e-9);
}

TEST(StepGraph, RefusesWhatIsNoStep) {
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
