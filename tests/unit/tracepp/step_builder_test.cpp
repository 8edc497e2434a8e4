// From traces to steps: on synthetic runs, whose replay must take as long as they did.
#include "tracepp/steps/step_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"
#include "tracepp/findings/stragglers.h"
#include "tracepp/synthetic.h"

namespace ms::tracepp {
namespace {

SyntheticRun quiet() {
  SyntheticRun run;
  run.noise = run.message_noise = run.rank_spread = run.outlier_rate = 0;
  run.steps = 4;
  return run;
}

struct Shape {
  const char* name;
  mesh::Mesh mesh;
  const char* schedule = "1f1b";
  int chunks = 1, spans = 2;
};
class Quiet : public testing::TestWithParam<Shape> {};

// Everything that a step does is in the replay, with all that overlaps: nothing is left unexplained, and nothing is
// counted twice.
TEST_P(Quiet, ReplaysInTheMeasuredTime) {
  SyntheticRun run = quiet();
  run.mesh = GetParam().mesh;
  run.schedule = GetParam().schedule;
  run.chunks = GetParam().chunks;
  run.spans = GetParam().spans;
  const BuiltSteps built = build_steps(make_run(run));
  const Stragglers found = find_stragglers(built.steps);
  EXPECT_EQ(built.steps.steps.size(), 4U);
  EXPECT_TRUE(built.steps.left_out.empty());
  EXPECT_NEAR(found.without_delays_s, found.measured_s, 1e-3 * found.measured_s);
  EXPECT_NEAR(found.S, 1, 1e-3);
  for (std::size_t step = 1; step < 4; ++step)
    EXPECT_NEAR(built.ranks.periods[step], found.measured_s, 1e-3 * found.measured_s);
  for (const float lost : built.ranks.lost) EXPECT_LT(lost, 1e-4F);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Quiet,
                         testing::Values(Shape{"all_axes", {2, 4, 2}}, Shape{"no_dp", {1, 4, 2}},
                                         Shape{"no_pp", {4, 1, 2}}, Shape{"no_tp", {4, 4, 1}}, Shape{"one", {1, 1, 1}},
                                         Shape{"interleaved", {2, 4, 2}, "1f1b", 2}, Shape{"zb_h1", {2, 4, 2}, "zb-h1"},
                                         Shape{"gpipe", {2, 2, 2}, "gpipe"}, Shape{"one_span", {2, 4, 1}, "1f1b", 1, 1},
                                         Shape{"four_spans", {2, 4, 1}, "1f1b", 1, 4}),
                         [](const auto& shape) { return shape.param.name; });

TEST(BuiltSteps, ExcludesWaitingForTpPeersFromWork) {
  for (const bool has_detail : {true, false}) {
    SyntheticRun run = quiet();
    run.has_detail = has_detail;
    run.faults = {{.kind = Fault::Kind::slow_rank, .rank = 1, .factor = 1.5}};
    const BuiltSteps built = build_steps(make_run(run));
    const double work_s = run.microbatches * (run.forward_s + run.backward_s);
    for (int place = 0; place < run.mesh.size(); ++place) {
      const double expected = place == 1 ? 1.5 * work_s : work_s;
      EXPECT_NEAR(built.ranks.compute[built.ranks.at(place, 2)], expected, 2e-3 * work_s) << place << has_detail;
    }
  }
}

TEST(BuiltSteps, IgnoresClockOffsets) {
  SyntheticRun run;
  run.ranks_on_host = 2;
  const Stragglers right = find_stragglers(build_steps(make_run(run)).steps);
  run.clock_offset_s = 0.7;
  const Stragglers wrong = find_stragglers(build_steps(make_run(run)).steps);
  EXPECT_NEAR(wrong.S, right.S, 1e-5);
  EXPECT_NEAR(wrong.without_delays_s, right.without_delays_s, 1e-5);
  for (std::size_t i = 0; i < right.by_dp.size(); ++i)
    EXPECT_NEAR(wrong.by_dp[i].slowdown, right.by_dp[i].slowdown, 1e-5);
}

// One dp rank alone as measured: as if each were played for itself.
TEST(Replay, AloneKeepsOneDpRankAsMeasured) {
  for (const int dp : {1, 2, 5}) {
    SyntheticRun run;
    run.mesh = {dp, 4, 2};
    run.noise = 0.05;
    const StepTrace steps = build_steps(make_run(run)).steps;
    const WhatIf what_if(steps);
    const std::vector<double> alone = what_if.alone();
    for (int chosen = 0; chosen < dp; ++chosen) {
      std::vector<double> mixed = what_if.measured();
      for (std::size_t op = 0; op < steps.ops.size(); ++op) {
        for (std::size_t lane = 0; lane < steps.lanes(); ++lane) {
          if (static_cast<int>(lane) % dp != chosen)
            mixed[op * steps.lanes() + lane] = what_if.ideal(steps.ops[op].type);
        }
      }
      double mean = 0;
      for (const double seconds : what_if.replay().steps(mixed))
        mean += seconds / static_cast<double>(steps.steps.size());
      EXPECT_NEAR(alone[static_cast<std::size_t>(chosen)], mean, 1e-12);
    }
  }
}

Event& event_of(RunTrace& run, int rank, int step, Kind kind) {
  for (Event& event : run.ranks[static_cast<std::size_t>(rank)].events)
    if (event.step == step && run.info(event).kind == kind) return event;
  throw std::out_of_range("no such event");
}

TEST(BuiltSteps, LeavesOutIncompleteSteps) {
  const auto left = [](auto&& damage) {
    RunTrace run = make_run(quiet());
    damage(run);
    return build_steps(run).steps;
  };
  const StepTrace unfinished = left([](RunTrace& run) { event_of(run, 3, 2, Kind::backward).state = State::begun; });
  EXPECT_THAT(unfinished.steps, testing::ElementsAre(0, 1, 3));
  ASSERT_EQ(unfinished.left_out.size(), 1U);
  EXPECT_EQ(unfinished.left_out[0].step, 2);
  EXPECT_EQ(unfinished.left_out[0].why, "rank 3 did not finish it, or did other work in it");
  const StepTrace lacking = left([](RunTrace& run) {
    auto& events = run.ranks[5].events;
    std::erase_if(events, [&](const Event& event) { return event.step == 1 && run.info(event).kind == Kind::send; });
  });
  EXPECT_THAT(lacking.steps, testing::ElementsAre(0, 2, 3));
  const StepTrace evaluating = left([](RunTrace& run) {
    EventInfo info;
    info.kind = Kind::forward;
    info.purpose = Purpose::evaluation;
    event_of(run, 0, 3, Kind::data_wait).info = Tables(run).info(info);
  });
  EXPECT_THAT(evaluating.steps, testing::ElementsAre(0, 1, 2));
  const auto saving = [&](std::int64_t ns) {
    return left([&](RunTrace& run) {
      EventInfo info;
      info.kind = Kind::save;
      Event& event = event_of(run, 0, 0, Kind::data_wait);
      event.info = Tables(run).info(info);
      event.duration_ns = ns;
    });
  };
  EXPECT_THAT(saving(100'000'000).steps, testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(saving(100'000).steps, testing::ElementsAre(0, 1, 2, 3));  // hardly held it up
}

TEST(BuiltSteps, UsesTheTracedRanks) {
  RunTrace one_lost = make_run(quiet());
  one_lost.ranks.erase(one_lost.ranks.begin() + 3);  // its tp peer is there
  EXPECT_EQ(build_steps(one_lost).steps.dp, 2);

  RunTrace cell_lost = make_run(quiet());
  std::erase_if(cell_lost.ranks, [](const RankTrace& rank) { return rank.at.dp == 0 && rank.at.pp == 1; });
  const StepTrace steps = build_steps(cell_lost).steps;
  EXPECT_EQ(steps.dp, 1);
  EXPECT_THAT(steps.dp_ranks, testing::ElementsAre(1));
  EXPECT_NEAR(find_stragglers(steps).S, 1, 1e-3);
  EXPECT_EQ(find_stragglers(steps).by_dp[0].name, "dp 1");

  // Recorders that write no optimizer and no clipping.
  RunTrace foreign = make_run(quiet());
  for (RankTrace& rank : foreign.ranks) {
    std::erase_if(rank.events, [&](const Event& event) {
      const EventInfo& info = foreign.info(event);
      return info.kind == Kind::optimizer || info.purpose == Purpose::clip || trace::is_host(info.kind);
    });
  }
  EXPECT_NEAR(find_stragglers(build_steps(foreign).steps).S, 1, 1e-3);
}

// Where dp ranks share the optimizer's state, only some of them keep a part of what is summed over tp or the ends.
TEST(BuiltSteps, AcceptsSharedGradientReductionsOnSomeRanksOnly) {
  RunTrace run = make_run(quiet());
  for (const Purpose purpose : {Purpose::layernorm, Purpose::embedding}) {
    EventInfo info;
    info.kind = Kind::all_reduce;
    info.purpose = purpose;
    const std::uint32_t index = Tables(run).info(info);
    for (RankTrace& rank : run.ranks) {
      if (rank.at.dp != 0) continue;
      std::vector<Event> events;
      for (const Event& event : rank.events) {
        if (run.info(event).purpose == Purpose::clip) {
          Event sum = event;
          sum.info = index;
          sum.duration_ns = 1000;
          events.push_back(sum);
        }
        events.push_back(event);
      }
      rank.events = std::move(events);
    }
  }
  const StepTrace steps = build_steps(run).steps;
  EXPECT_EQ(steps.dp, 2);
  EXPECT_EQ(steps.steps.size(), 4U);
  for (const OpType type : {OpType::layernorm_grads_all_reduce, OpType::embedding_grads_all_reduce})
    EXPECT_EQ(std::ranges::count(steps.ops, type, &StepOp::type), 2);
  EXPECT_NEAR(find_stragglers(steps).S, 1, 1e-3);
}

TEST(BuiltSteps, RefusesTracesWithoutSteps) {
  const auto expect_refused = [](const char* message, auto&& damage) {
    RunTrace run = make_run(quiet());
    damage(run);
    try {
      build_steps(run);
      ADD_FAILURE() << "accepted: " << message;
    } catch (const Error& error) { EXPECT_THAT(error.what(), testing::HasSubstr(message)); }
  };
  expect_refused("how ranks lie on the axes", [](RunTrace& run) { run.has_mesh = false; });
  expect_refused("how ranks lie on the axes", [](RunTrace& run) { run.mesh = {1 << 20, 1 << 20, 1 << 20}; });
  expect_refused("how ranks lie on the axes", [](RunTrace& run) { run.mesh = {-1, -1, 1}; });
  expect_refused("of none of the 2 dp ranks", [](RunTrace& run) { run.ranks.resize(2); });
  expect_refused("of none of the 2 dp ranks", [](RunTrace& run) {
    for (RankTrace& rank : run.ranks)
      for (Event& event : rank.events) event.state = State::issued;
  });
  expect_refused("none of 4 steps is whole", [](RunTrace& run) {
    for (int step = 0; step < 4; ++step) event_of(run, step + step / 2, step, Kind::backward).state = State::begun;
  });
}

// Whatever is damaged: an answer or an Error, never anything else.
TEST(BuiltSteps, SurvivesDamage) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SyntheticRun made = quiet();
    made.microbatches = 3;
    RunTrace run = make_run(made);
    auto draw = [&, index = std::uint64_t{0}](std::uint64_t below) mutable {
      return uniform_below(seed, rng_key("damage"), index++, below);
    };
    for (int i = 0; i < 30; ++i) {
      RankTrace& rank = run.ranks[draw(run.ranks.size())];
      if (rank.events.empty()) continue;
      Event& event = rank.events[draw(rank.events.size())];
      switch (draw(8)) {
        case 0: event.step = static_cast<std::int32_t>(draw(7)) - 2; break;
        case 1: event.duration_ns = static_cast<std::int64_t>(draw(2'000'000'000)) - 1'000'000'000; break;
        case 2: event.begin_ns += static_cast<std::int64_t>(draw(2'000'000'000)) - 1'000'000'000; break;
        case 3: event.info = static_cast<std::uint32_t>(draw(run.infos.size())); break;
        case 4: event.microbatch = static_cast<std::uint16_t>(draw(9)); break;
        case 5: event.detail = static_cast<std::uint32_t>(draw(1U << 30)); break;
        case 6: std::swap(event, rank.events.front()); break;
        default: rank.events.resize(draw(rank.events.size()) + 1);
      }
    }
    try {
      const Stragglers found = find_stragglers(build_steps(run).steps);
      EXPECT_FALSE(found.step_slowdowns.empty());
    } catch (const Error& error) { EXPECT_STREQ(error.what() == nullptr ? "" : "said", "said"); }
  }
}

}  // namespace
}  // namespace ms::tracepp
