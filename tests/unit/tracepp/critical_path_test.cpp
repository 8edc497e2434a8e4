// Critical paths of steps that were played, so that it is known what they consist of, and of events that make no sense.
#include "tracepp/steps/critical_path.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "made_run.h"

namespace ms::tracepp {
namespace {

CriticalPaths paths_of(const RunTrace& run) { return critical_paths(run, match_operations(run), break_down(run)); }

// Pieces lie end to end and fill the step.
void expect_sound(const CriticalPaths& paths) {
  std::int64_t time_ns = 0, by_kind_ns = 0, by_rank_ns = 0;
  for (const StepPath& step : paths.steps) {
    time_ns += step.end_ns - step.begin_ns;
    std::int64_t now = step.begin_ns;
    for (const PathPiece& piece : step.pieces) {
      ASSERT_EQ(piece.begin_ns, now);
      ASSERT_GT(piece.end_ns, piece.begin_ns);
      now = piece.end_ns;
    }
    ASSERT_EQ(now, step.end_ns);
  }
  for (const PathShare& share : paths.by_kind) by_kind_ns += share.time_ns;
  for (const RankShare& share : paths.by_rank) by_rank_ns += share.time_ns;
  EXPECT_EQ(paths.time_ns, time_ns);
  EXPECT_EQ(by_kind_ns, time_ns);
  EXPECT_EQ(by_rank_ns, time_ns);
}

std::int64_t time_of(const CriticalPaths& paths, PieceOf of, Kind kind, Purpose purpose = Purpose::none) {
  std::int64_t sum = 0;
  for (const PathShare& share : paths.by_kind)
    if (share.of == of && share.work == KindOfWork{kind, purpose}) sum += share.time_ns;
  return sum;
}

std::int64_t delay_of(const CriticalPaths& paths) { return time_of(paths, PieceOf::delay, Kind::other); }

TEST(CriticalPath, OfOneMicrobatchThroughTwoStages) {
  PipelineSpec spec;
  spec.mesh = {.dp = 1, .pp = 2, .tp = 1};
  spec.microbatches = spec.steps = 1;
  const RunTrace run = play_pipeline(spec);
  const CriticalPaths paths = paths_of(run);
  expect_sound(paths);
  ASSERT_EQ(paths.steps.size(), 1U);
  EXPECT_EQ(paths.time_ns, 7'320'000);
  EXPECT_EQ(time_of(paths, PieceOf::computing, Kind::forward), 2'000'000);
  EXPECT_EQ(time_of(paths, PieceOf::computing, Kind::backward), 4'000'000);
  EXPECT_EQ(time_of(paths, PieceOf::computing, Kind::optimizer), 500'000);
  EXPECT_EQ(time_of(paths, PieceOf::transfer, Kind::recv, Purpose::forward), 100'000);
  EXPECT_EQ(time_of(paths, PieceOf::transfer, Kind::recv, Purpose::backward), 100'000);
  EXPECT_EQ(time_of(paths, PieceOf::transfer, Kind::all_gather, Purpose::params), 300'000);
  EXPECT_EQ(time_of(paths, PieceOf::transfer, Kind::reduce_scatter, Purpose::grads), 300'000);
  EXPECT_EQ(time_of(paths, PieceOf::transfer, Kind::all_reduce, Purpose::clip), 20'000);
  EXPECT_EQ(delay_of(paths), 0);
}

TEST(CriticalPath, FollowsTheSlowReplica) {
  PipelineSpec spec;
  spec.mesh = {.dp = 4, .pp = 2, .tp = 1};
  spec.slowness = [](int rank, int) { return rank == 3 ? 0.3 : 0.0; };  // dp 3 of stage 0
  const CriticalPaths paths = paths_of(play_pipeline(spec));
  expect_sound(paths);
  ASSERT_FALSE(paths.by_rank.empty());
  EXPECT_EQ(paths.by_rank[0].rank, 3U);
  EXPECT_EQ(delay_of(paths), 0);
  // 4 forwards and backwards of the slow rank would be all of it but for the turn around the other stage.
  EXPECT_GT(static_cast<double>(paths.by_rank[0].computing_ns), 0.55 * static_cast<double>(paths.time_ns));
}

TEST(CriticalPath, GoesThroughTensorParallelPeers) {
  PipelineSpec spec;
  spec.mesh = {.dp = 1, .pp = 1, .tp = 4};
  spec.microbatches = 2;
  spec.tp_collectives = 3;
  spec.slowness = [](int rank, int) { return rank == 2 ? 0.2 : 0.0; };
  const CriticalPaths paths = paths_of(play_pipeline(spec));
  expect_sound(paths);
  EXPECT_EQ(paths.by_rank[0].rank, 2U) << "the others wait for it at every message";
  EXPECT_GT(static_cast<double>(paths.by_rank[0].time_ns), 0.9 * static_cast<double>(paths.time_ns));
  EXPECT_EQ(time_of(paths, PieceOf::transfer, Kind::all_reduce, Purpose::forward), 3 * 2 * 3 * 50'000);
  EXPECT_EQ(delay_of(paths), 0);
}

TEST(CriticalPath, ExcludesHiddenCommunication) {
  MadeRun made({.tp = 2});
  const std::uint32_t reduce = made.info(Kind::all_reduce, Purpose::forward, made.group("tp[dp 0 pp 0]", {0, 1}), 64);
  for (int r = 0; r < 2; ++r) {
    made.step_event(r, 0, 100'000);
    made.add(r, reduce, {20'000, 60'000, 0, 0, State::ended});
    made.section(r, Kind::forward, 0, 100'000, 99);  // computed all the time but 1 us
  }
  const CriticalPaths paths = paths_of(made.run);
  expect_sound(paths);
  EXPECT_EQ(time_of(paths, PieceOf::computing, Kind::forward), 100'000);
}

TEST(CriticalPath, ShowsWaitingForData) {
  PipelineSpec spec;
  spec.mesh = {.dp = 2, .pp = 2, .tp = 1};
  spec.data_wait_ns = [](int rank, int step) { return rank == 1 && step == 1 ? 5'000'000 : 0; };
  const CriticalPaths paths = paths_of(play_pipeline(spec));
  expect_sound(paths);
  EXPECT_EQ(time_of(paths, PieceOf::data_wait, Kind::data_wait), 5'000'000);
  EXPECT_EQ(delay_of(paths), 0);
}

TEST(CriticalPath, CallsUnexplainedTimeADelay) {
  MadeRun made({.dp = 1});
  made.step_event(0, 0, 100);
  made.section(0, Kind::forward, 10, 40);
  made.section(0, Kind::backward, 70, 95);
  const CriticalPaths paths = paths_of(made.run);
  expect_sound(paths);
  EXPECT_EQ(delay_of(paths), 45);
  ASSERT_EQ(paths.steps[0].pieces.size(), 5U);
  EXPECT_TRUE(paths_of(MadeRun({.dp = 1}).run).steps.empty());
}

TEST(CriticalPath, FillsRandomPipelines) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 0.05);
    PipelineSpec spec;
    const auto any = [&](int most) { return 1 + static_cast<int>(random() % static_cast<unsigned>(most)); };
    spec.mesh = {.dp = any(3), .pp = any(4), .tp = any(3)};
    spec.microbatches = any(6);
    spec.tp_collectives = any(3);
    spec.slowness = [&](int, int) { return noise(random); };
    const CriticalPaths paths = paths_of(play_pipeline(spec));
    expect_sound(paths);
    EXPECT_EQ(paths.steps.size(), 3U);
    EXPECT_EQ(delay_of(paths), 0) << seed << ": nothing runs in between, so everything is explained";
  }
}

// Messages that end before others have come, sections inside each other, lengths of 0.
TEST(CriticalPath, FillsStepsOfAnyEvents) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const auto any = [&](int below) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(below)); };
    MadeRun made({.dp = 3});
    const std::vector<std::int32_t> groups{made.group("dp[pp 0 tp 0]", {0, 1, 2}), made.group("tp[dp 0 pp 0]", {0, 1}),
                                           made.group("pp.fwd[dp 0 tp 0] 0>1", {1, 2})};
    const std::vector<Kind> kinds{Kind::forward, Kind::backward, Kind::optimizer, Kind::all_reduce, Kind::data_wait};
    const std::vector<Purpose> purposes{Purpose::none, Purpose::forward, Purpose::grads, Purpose::clip};
    for (int rank = 0; rank < 3; ++rank) {
      for (int step = 0; step < 3; ++step) {
        made.step = step;
        if (seed % 2 == 0) made.step_event(rank, step * 1000, step * 1000 + 1000 + any(100));
        for (int i = 0; i < 40; ++i) {
          const Kind kind = kinds[random() % kinds.size()];
          const bool is_comm = trace::is_comm(kind);
          const std::int64_t begin = step * 1000 + any(1000);
          made.add(
              rank,
              made.info(kind, purposes[random() % purposes.size()], is_comm ? groups[random() % groups.size()] : -1),
              {begin, begin + any(4) * any(60), static_cast<std::uint32_t>(any(20)), 0, State::ended});
        }
      }
    }
    const CriticalPaths paths = paths_of(made.run);
    ASSERT_EQ(paths.steps.size(), 3U);
    expect_sound(paths);
    ASSERT_FALSE(HasFailure()) << seed;
  }
}

}  // namespace
}  // namespace ms::tracepp
