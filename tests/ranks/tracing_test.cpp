// A training run records its execution: every rank, every row of the schedule, and every operation of every group with
// its number, in each step; and tracing changes no bit of the results.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "trace/flusher.h"
#include "tracepp/matching.h"
#include "tracepp/read/trace_reader.h"
#include "train/run/tracing.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

using trace::GroupAxis;
using trace::Kind;
using trace::Purpose;
using tracepp::Event;
using tracepp::RankTrace;
using tracepp::RunTrace;

constexpr int kSteps = 4;

class TracedRun : public ::testing::Test {
 protected:
  TracedRun() : dir_(::testing::TempDir() + "tracing_test." + std::to_string(getpid())) {
    std::filesystem::remove_all(dir_);
  }
  ~TracedRun() override { std::filesystem::remove_all(dir_); }

  // Runs the ranks like run_rank(), with begin_step and end_step.
  RunTrace traced(train::Settings settings) const {
    settings.trace.dir = dir_;
    trace::Flusher flusher(0.01);
    on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
      train::Tracing tracing(plan, "configuration", world, device, 0, flusher);
      trace::Recorder* recorder = device.recorder();
      ASSERT_EQ(recorder != nullptr, settings.trace.enabled);
      {
        train::Engine engine(plan, world, device);
        engine.initialize(1);
        std::vector<std::int32_t> tokens, targets;
        for (int step = 0; step < kSteps; ++step) {
          if (recorder != nullptr) recorder->begin_step(step, trace::now_ns());
          engine.prefetch();
          if (engine.needs_input()) fill_batch(plan, step, engine.at().dp, tokens, targets);
          engine.issue_step(step, 1e-3, tokens, targets);
          engine.finish_step(step);
          if (recorder != nullptr) recorder->end_step(step, trace::now_ns(), device.op_seconds());
        }
        engine.synchronize();
      }
      tracing.done();
    });
    RunTrace run;
    if (!settings.trace.enabled) return run;
    tracepp::TraceFileReader reader(run);
    for (int rank = 0; rank < run_size(settings); ++rank) reader.read(dir_ + "/" + trace::trace_file_name(rank));
    return run;
  }
  static int run_size(const train::Settings& settings) {
    return static_cast<int>(settings.mesh.dp * settings.mesh.pp * settings.mesh.tp);
  }

  std::string dir_;
};

TEST_F(TracedRun, RecordsEveryRowAndEveryCommunication) {
  train::Settings settings = with(tiny_settings("gpt"), {.dp = 2, .tp = 2, .pp = 2, .chunks = 2});
  settings.train.microbatch = 1;
  settings.train.global_batch = 8;
  settings.model.tied_embeddings = true;
  const int microbatches = 4;
  const RunTrace run = traced(settings);
  EXPECT_TRUE(run.problems.empty());
  EXPECT_EQ(run.microbatches, microbatches);
  EXPECT_EQ(run.chunks, 2);
  EXPECT_GT(run.flops_per_step, 0);
  ASSERT_EQ(run.ranks.size(), 8U);
  for (const RankTrace& rank : run.ranks) {
    EXPECT_EQ(rank.dropped, 0U);
    EXPECT_EQ(rank.ending, tracepp::Ending::done);
    ASSERT_EQ(rank.sums.size(), static_cast<std::size_t>(kSteps));
    std::map<std::pair<int, Kind>, int> counts;               // by step and kind
    std::set<std::tuple<int, int, int>> forwards, backwards;  // step, chunk, microbatch
    for (const Event& event : rank.events) {
      const tracepp::EventInfo& info = run.info(event);
      EXPECT_EQ(event.state, tracepp::State::ended);
      EXPECT_GE(event.duration_ns, 0);
      ++counts[{event.step, info.kind}];
      if (info.kind == Kind::forward) forwards.insert({event.step, info.chunk, event.microbatch});
      if (info.kind == Kind::backward) backwards.insert({event.step, info.chunk, event.microbatch});
      if (trace::is_section(info.kind)) {
        EXPECT_NE(event.detail, tracepp::kNoDetail);
        EXPECT_LE(event.detail, event.duration_ns / 1000 + 1);
      }
      if (trace::is_comm(info.kind)) {
        ASSERT_GE(info.group, 0);
        EXPECT_GT(info.size_bytes, 0);
        const GroupAxis axis = run.groups[static_cast<std::size_t>(info.group)].axis;
        EXPECT_NE(axis, GroupAxis::other);
        if (axis == GroupAxis::dp) { EXPECT_TRUE(info.purpose == Purpose::params || info.purpose == Purpose::grads); }
        if (axis == GroupAxis::world) { EXPECT_EQ(info.purpose, Purpose::clip); }
        if (info.kind == Kind::send || info.kind == Kind::recv) {
          EXPECT_TRUE(info.purpose == Purpose::forward || info.purpose == Purpose::backward);
          EXPECT_GE(event.microbatch, 0);
          EXPECT_LT(event.microbatch, microbatches);
        }
      }
    }
    EXPECT_EQ(forwards.size(), static_cast<std::size_t>(kSteps * 2 * microbatches));
    EXPECT_EQ(backwards.size(), forwards.size());
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_EQ((counts[{step, Kind::step}]), 1);
      EXPECT_EQ((counts[{step, Kind::optimizer}]), 1);
      // Three boundaries between virtual stages touch a rank from either side; the last stage has no successor.
      const int sends = counts[{step, Kind::send}], receives = counts[{step, Kind::recv}];
      EXPECT_EQ(sends, receives);
      EXPECT_EQ(sends, 3 * microbatches);
      if (step > 0) { EXPECT_EQ((counts[{step, Kind::all_gather}]), (counts[{1, Kind::all_gather}])); }
    }
    const auto sum = [&](trace::format::SumOf of) { return rank.sums.back().seconds[static_cast<std::size_t>(of)]; };
    EXPECT_GT(sum(trace::format::SumOf::busy), 0);
    EXPECT_GT(sum(trace::format::SumOf::matmul), 0);
    EXPECT_EQ(rank.sums.back().unfinished, 0U);
  }
  // Every operation has all its members, with equal properties.
  const tracepp::Matches matches = tracepp::match_operations(run);
  EXPECT_TRUE(matches.problems.empty());
  ASSERT_GT(matches.operations.size(), 100U);
  std::set<GroupAxis> axes;
  for (std::size_t i = 0; i < matches.operations.size(); ++i) {
    const tracepp::ProcessGroup& group = run.groups[static_cast<std::size_t>(matches.operations[i].group)];
    const auto members = matches.members_of(i);
    axes.insert(group.axis);
    ASSERT_EQ(members.size(), group.ranks.size()) << group.name << " " << matches.operations[i].sequence;
    std::int64_t last_begin = 0;
    for (const tracepp::Member& member : members) {
      last_begin = std::max(last_begin, tracepp::event_of(run, member).begin_ns);
    }
    for (const tracepp::Member& member : members) {
      const Event& event = tracepp::event_of(run, member);
      EXPECT_EQ(run.info(event).size_bytes, run.info(tracepp::event_of(run, members[0])).size_bytes);
      EXPECT_EQ(run.info(event).type, run.info(tracepp::event_of(run, members[0])).type);
      // All ranks share one clock: no operation ends before its last member arrived. (A member that only sends may end
      // a moment earlier.)
      EXPECT_GE(event.end_ns(), last_begin);
    }
  }
  EXPECT_EQ(axes, (std::set{GroupAxis::tp, GroupAxis::dp, GroupAxis::pp, GroupAxis::world}));
}

TEST_F(TracedRun, RecordsOps) {
  train::Settings settings = with(tiny_settings("llama"), {.dp = 1, .tp = 1, .pp = 1});
  settings.trace.level = "ops";
  const RunTrace run = traced(settings);
  std::map<Kind, int> counts;
  for (const Event& event : run.ranks.front().events) ++counts[run.info(event).kind];
  EXPECT_GT(counts[Kind::matmul], counts[Kind::attention]);
  EXPECT_GT(counts[Kind::attention], 0);
  EXPECT_GT(counts[Kind::loss], 0);
  EXPECT_EQ(run.ranks.front().dropped, 0U);
}

TEST_F(TracedRun, WritesNothingWhenDisabled) {
  train::Settings settings = with(tiny_settings("gpt"), {.dp = 2, .tp = 1, .pp = 1});
  settings.trace.enabled = false;
  traced(settings);
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

TEST_F(TracedRun, ChangesNoBit) {
  const train::Settings settings = with(tiny_settings("gpt"), {.dp = 2, .tp = 2, .pp = 2});
  const Outcome plain = run_threads(settings, 3);
  Outcome outcome;
  train::Settings with_traces = settings;
  with_traces.trace.dir = dir_;
  with_traces.trace.level = "ops";
  trace::Flusher flusher(0.01);
  on_threads(with_traces, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    const train::Tracing tracing(plan, "configuration", world, device, 0, flusher);
    run_rank(plan, world, device, 3, outcome);
  });
  EXPECT_EQ(plain.losses, outcome.losses);
  EXPECT_EQ(plain.norms, outcome.norms);
  EXPECT_TRUE(same_bits(plain.parameters, outcome.parameters));
}

}  // namespace
}  // namespace ms::testing_case
