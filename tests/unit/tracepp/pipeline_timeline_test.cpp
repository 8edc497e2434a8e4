// Timelines of many ranks: NDTimeline's and StragglerAnalysis's.
#include "tracepp/read/pipeline_timeline.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "foreign_files.h"
#include "tracepp/steps/step_graph.h"
#include "tracepp/steps/straggler_timeline.h"

namespace ms::tracepp {
namespace {

std::string metadata(const std::string& kind, int pid, int tid, const std::string& name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", kind, pid, tid, name);
}

// Two stages and two dp ranks, of which every second tp rank was traced; `skip` leaves out one event. Parameters are
// gathered before the first forward or, as Megatron does without overlap, behind the optimizer.
std::string timeline(int steps, int skip = -1, bool gathers_last = false) {
  const double unit_us = gathers_last ? 100 : 1;  // far more than the clocks of lanes differ by
  std::string text = "[";
  int count = 0;
  for (int step = 0; step < steps; ++step) {
    for (int pp = 0; pp < 2; ++pp) {
      for (int dp = 0; dp < 2; ++dp) {
        const auto add = [&](const char* name, int lane, int seq, double ts, int chunk) {
          if (count++ == skip) return;
          text += fmt::format(
              R"({{"name":"{}","cat":"x","pid":{},"tid":{},"ts":{:.3f},"dur":{:.1f},"ph":"X","args":{{"step":{},"model_chunk":{},"mb_id":{},"seq_id":{}}}}},)",
              name, dp, 5 * ((pp * 2 + dp) * 2) + lane, unit_us * (ts + 1000 * step), unit_us * 10.5, 40 + step, chunk,
              chunk < 0 ? -1 : seq, seq);
        };
        add("params-all-gather", 3, 0, gathers_last ? 260 : 1, 0);
        for (int i = 0; i < 2; ++i) {
          if (pp == 1) add("forward-recv", 1, i, 5 + 30 * i, -1);
          add("forward-compute", 0, i, 10 + 30 * i, 0);
          if (pp == 0) add("forward-send", 1, i, 20 + 30 * i, -1);
        }
        for (int i = 0; i < 2; ++i) {
          if (pp == 0) add("backward-recv", 1, i, 105 + 30 * i, -1);
          add("backward-compute", 0, i, 110 + 30 * i, 0);
          if (pp == 1) add("backward-send", 1, i, 120 + 30 * i, -1);
        }
        add("grads-reduce-scatter", 3, 0, 200, 0);
        add("embedding-grads-all-reduce", 3, 0, 210, -1);
        add("optimizer-clip-main-grad", 3, 0, 220, -1);
        add("optimizer", 0, 0, 230, -1);
      }
    }
  }
  for (int pp = 0; pp < 2; ++pp) {
    for (int dp = 0; dp < 2; ++dp) {
      for (int lane = 0; lane < 5; ++lane) {
        text += metadata("thread_name", dp, 5 * ((pp * 2 + dp) * 2) + lane,
                         fmt::format("PP rank {}, TP rank 0, lane", pp)) +
                ",";
      }
    }
  }
  return text + metadata("process_name", 0, 0, "DP rank [0]") + "]";
}

RunTrace read(const std::string& text) {
  const ForeignFiles files;
  return read_run({files.put("timeline.json", text)});
}

const ProcessGroup& group_of(const RunTrace& trace, const Event& event) {
  return trace.groups.at(static_cast<std::size_t>(trace.info(event).group));
}

TEST(PipelineTimeline, FindsThePlacesOfRanks) {
  const RunTrace trace = read(timeline(2));
  EXPECT_EQ(trace.source, &kStragglerAnalysis);
  ASSERT_TRUE(trace.has_mesh);
  EXPECT_EQ(trace.mesh, (mesh::Mesh{.dp = 2, .pp = 2, .tp = 2}));
  ASSERT_EQ(trace.ranks.size(), 4U);
  EXPECT_EQ(trace.ranks[3].rank, 6);
  EXPECT_EQ(trace.ranks[3].at, (mesh::Coord{.dp = 1, .pp = 1, .tp = 0}));
  EXPECT_TRUE(trace.problems.empty());
  const Event& forward = event_named(trace, "forward-compute");
  EXPECT_EQ(trace.info(forward).kind, Kind::forward);
  EXPECT_EQ(trace.info(forward).chunk, 0);
  EXPECT_EQ(forward.step, 40);
  EXPECT_EQ(forward.microbatch, 0);
  EXPECT_EQ(forward.detail, kNoDetail);
  EXPECT_EQ(forward.duration_ns, 10500);
  const Event& gather = event_named(trace, "params-all-gather");
  EXPECT_EQ(trace.info(gather).purpose, Purpose::params);
  EXPECT_EQ(group_of(trace, gather).name, "dp[pp 0 tp 0]");
  EXPECT_THAT(group_of(trace, gather).ranks, testing::ElementsAre(0, 2));
  EXPECT_THAT(group_of(trace, event_named(trace, "forward-recv")).ranks, testing::ElementsAre(0, 4));
  EXPECT_THAT(group_of(trace, event_named(trace, "backward-recv")).ranks, testing::ElementsAre(4, 0));
  EXPECT_EQ(group_of(trace, event_named(trace, "backward-recv")).axis, GroupAxis::pp);
  EXPECT_THAT(group_of(trace, event_named(trace, "optimizer-clip-main-grad")).ranks, testing::ElementsAre(0, 4));
}

TEST(PipelineTimeline, JoinsEventsByGroupAndNumber) {
  const RunTrace trace = read(timeline(3));
  std::map<std::pair<std::int32_t, std::uint32_t>, std::vector<int>> met;
  for (const RankTrace& rank : trace.ranks) {
    for (const Event& event : rank.events) {
      const EventInfo& info = trace.info(event);
      if (trace::is_comm(info.kind)) met[{info.group, event.detail}].push_back(rank.rank);
    }
  }
  EXPECT_EQ(met.size(), 3U * (2 * 2 + 2 * 2 * 2 + 2 + 2));  // two over dp a stage, p2p, embedding, clip
  for (auto& [operation, ranks] : met) {
    std::vector<int> members = trace.groups.at(static_cast<std::size_t>(operation.first)).ranks;
    std::ranges::sort(members);
    EXPECT_EQ(ranks, members) << operation.first << " " << operation.second;
  }
}

TEST(PipelineTimeline, AGatherBehindTheOptimizerIsForTheNextStep) {
  const StepTrace steps = straggler_steps(read(timeline(2, -1, true)));
  const StepGraph graph = make_step_graph(steps);
  EXPECT_EQ(order_of(graph).entries.size(), steps.ops.size() + graph.groups.size());  // throws if there is a ring
  for (std::size_t op = 0; op < steps.ops.size(); ++op) {
    const std::vector<int>& before = graph.waits_for[op];
    const auto is = [&](OpType type) {
      return std::ranges::any_of(before,
                                 [&](int other) { return steps.ops[static_cast<std::size_t>(other)].type == type; });
    };
    EXPECT_EQ(is(OpType::optimizer), steps.ops[op].type == OpType::params_all_gather);
    EXPECT_FALSE(is(OpType::params_all_gather)) << to_string(steps.ops[op]);
  }
}

TEST(PipelineTimeline, ReadsNDTimelineOfSeveralHosts) {
  const auto host = [](int pp, int first_step) {
    std::string text = "{\"traceEvents\":[" + metadata("process_name", 0, 0, "dp rank[0]");
    for (int step = first_step; step < first_step + 2; ++step) {
      for (const auto& [name, lane] : {std::pair{"forward-compute", 0},
                                       {pp == 0 ? "forward-send" : "forward-recv", 3},
                                       {"unshard-all-gather", 5}}) {
        text += fmt::format(
            R"(,{{"ph":"X","cat":"c","name":"{}","pid":0,"tid":{},"ts":{},"dur":5,"args":{{"rank":{},"step":{},"tp":0,"pp":{}}}}})",
            name, 10 * pp + lane, 1000 * step, pp, step, pp);
        text += "," + metadata("thread_name", 0, 10 * pp + lane, fmt::format("rank[{}] lane", pp));
      }
    }
    return text + "]}";
  };
  const ForeignFiles files;
  files.put("host0/trace_step1_2.json", host(0, 1));
  files.put("host0/trace_step3_4.json", host(0, 3));
  files.put("host1/trace_step1_2.json.gz", gzipped(host(1, 1)));
  files.put("host1/trace_step3_4.json", host(1, 3));
  const RunTrace trace = read_run({files.path()});
  EXPECT_EQ(trace.source, &kNdtimeline);
  EXPECT_EQ(trace.mesh, (mesh::Mesh{.dp = 1, .pp = 2, .tp = 1}));
  ASSERT_EQ(trace.ranks.size(), 2U);
  EXPECT_EQ(trace.ranks[1].events.size(), 12U);
  EXPECT_EQ(trace.ranks[1].events.back().step, 4);
  const Event& send = event_named(trace, "forward-send");
  const Event& recv = event_named(trace, "forward-recv");
  EXPECT_EQ(trace.info(send).group, trace.info(recv).group);
  EXPECT_EQ(send.detail, recv.detail);
  EXPECT_EQ(trace.info(send).purpose, Purpose::forward);
  EXPECT_TRUE(trace.problems.empty());
}

TEST(StragglerSteps, UsesCompleteStepsOnly) {
  const StepTrace whole = straggler_steps(read(timeline(3)));
  EXPECT_EQ(whole.dp, 2);
  EXPECT_EQ(whole.pp, 2);
  EXPECT_EQ(whole.tp, 2);
  EXPECT_THAT(whole.steps, testing::ElementsAre(40, 41, 42));
  EXPECT_THAT(whole.ranks, testing::ElementsAre(0, 2, 4, 6));
  EXPECT_EQ(whole.ops.size(), 2U * (1 + 2 * 2 + 2 * 2 + 4));
  EXPECT_TRUE(whole.left_out.empty());
  for (const double duration : whole.duration_s) EXPECT_DOUBLE_EQ(duration, 10.5e-6);
  for (std::size_t op = 0; op < whole.ops.size(); ++op) {
    EXPECT_NEAR(whole.start_s[whole.at(op, 2, 1)] - whole.start_s[whole.at(op, 0, 0)], 2e-3, 1e-9);
  }
}

// Of one rank an event is missing, in a step at the start, in the middle, or at the end.
TEST(StragglerSteps, LeavesOutAStepThatIsNotWholeAndSaysWhy) {
  const StepTrace whole = straggler_steps(read(timeline(4)));
  constexpr int kEvents = 52;  // of a step
  for (int at = 0; at < 4; ++at) {
    for (int event = 0; event < kEvents; ++event) {
      const StepTrace cut = straggler_steps(read(timeline(4, kEvents * at + event)));
      std::vector<std::int64_t> others{40, 41, 42, 43};
      others.erase(others.begin() + at);
      ASSERT_EQ(cut.steps, others) << event;
      ASSERT_THAT(cut.ops, testing::UnorderedElementsAreArray(whole.ops));
      ASSERT_EQ(cut.left_out.size(), 1U);
      EXPECT_EQ(cut.left_out[0].step, 40 + at);
      const int stage = event / (kEvents / 2), rank = 2 * (event / (kEvents / 4));
      EXPECT_THAT(cut.left_out[0].why, testing::StartsWith(fmt::format("rank {} lacks ", rank)));
      EXPECT_THAT(cut.left_out[0].why, testing::EndsWith(fmt::format(" of stage {}", stage)));
    }
  }
}

TEST(StragglerSteps, LeavesOutAStepWithMoreThanOthers) {
  std::string text = timeline(4);
  text.insert(1, R"({"name":"backward-compute","cat":"x","pid":1,"tid":10,"ts":2150,"dur":9,"ph":"X",)"
                 R"("args":{"step":42,"model_chunk":0,"mb_id":2,"seq_id":2}},)");
  const StepTrace steps = straggler_steps(read(text));
  EXPECT_THAT(steps.steps, testing::ElementsAre(40, 41, 43));
  ASSERT_EQ(steps.left_out.size(), 1U);
  EXPECT_EQ(steps.left_out[0].step, 42);
  EXPECT_EQ(steps.left_out[0].why, "rank 2 has backward-compute 2 of stage 0, which most steps do not have");
}

// A table of all steps by all ranks would take 900 MB.
TEST(StragglerSteps, RefusesManyRanksEachInAStepOfItsOwn) {
  constexpr int kRanks = 30'000;
  constexpr std::int64_t kMostGrowth_KiB = 200 * 1024;
  RunTrace trace;
  trace.mesh = {.dp = kRanks};
  trace.infos.push_back({.kind = Kind::forward, .name = trace.strings.id("forward-compute")});
  for (int dp = 0; dp < kRanks; ++dp) {
    RankTrace& rank = trace.ranks.emplace_back();
    rank.rank = rank.at.dp = dp;
    rank.events = {{.begin_ns = dp, .duration_ns = 1, .step = dp}};
  }
  const auto peak_KiB = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return std::int64_t{usage.ru_maxrss};
  };
  const std::int64_t before_KiB = peak_KiB();
  try {
    straggler_steps(trace);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) { EXPECT_THAT(error.what(), testing::HasSubstr("in none of the 30000 steps")); }
  EXPECT_LT(peak_KiB() - before_KiB, kMostGrowth_KiB);
}

TEST(StragglerSteps, RefusesTracesWithoutSteps) {
  const auto expect_refused = [](const RunTrace& trace, const char* message) {
    try {
      straggler_steps(trace);
      ADD_FAILURE() << "accepted: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "trace.shape");
      EXPECT_THAT(error.what(), testing::HasSubstr(message));
    }
  };
  expect_refused(read(R"([{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}])"), "no events of a training step");
  RunTrace trace = read(timeline(2));
  trace.ranks.pop_back();
  expect_refused(trace, "3 of the 4 ranks of dp 2 and pp 2");
  trace = read(timeline(2, 3));
  RankTrace& rank = trace.ranks.back();
  rank.events.erase(rank.events.end() - 3, rank.events.end());
  expect_refused(trace, "in none of the 2 steps");
}

}  // namespace
}  // namespace ms::tracepp
