// Waits, transfers and bandwidths of communication, worked out by hand, and slow links among healthy ones.
#include "tracepp/steps/communication.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "made_run.h"

namespace ms::tracepp {
namespace {

CommReport report_of(const RunTrace& run) { return measure_communication(run, match_operations(run)); }

TEST(BusFactor, IsAsPublished) {
  EXPECT_DOUBLE_EQ(bus_factor(Kind::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::all_gather, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::reduce_scatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::all_to_all, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::broadcast, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::send, 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Kind::all_reduce, 0), 0);
}

// An all_reduce of four ranks that come one after the other.
TEST(Communication, WaitAndTransfer) {
  MadeRun made({.dp = 4});
  const std::uint32_t info =
      made.info(Kind::all_reduce, Purpose::grads, made.group("dp[pp 0 tp 0]", {0, 1, 2, 3}), 1'000'000);
  const std::vector<std::int64_t> begins_us{0, 10, 20, 100};
  for (int r = 0; r < 4; ++r)
    made.add(r, info, {begins_us[static_cast<std::size_t>(r)] * kUs, 150 * kUs, 0, kNoMicrobatch, State::ended});
  for (int r = 0; r < 3; ++r) made.add(r, info, {200 * kUs, 300 * kUs, 1, kNoMicrobatch, State::ended});  // one lacks
  for (int r = 0; r < 4; ++r)  // one did not end
    made.add(r, info, {400 * kUs, 410 * kUs, 2, kNoMicrobatch, r == 2 ? State::begun : State::ended});
  const CommReport report = report_of(made.run);
  ASSERT_EQ(report.rows.size(), 1U);
  const CommRow& row = report.rows[0];
  EXPECT_EQ(row.operations, 3U);
  EXPECT_EQ(row.complete, 1U);
  EXPECT_NEAR(row.skew_p50_s, 100e-6, 1e-10);
  EXPECT_EQ(row.wait_ns, (100 + 90 + 80) * kUs);
  EXPECT_EQ(row.transfer_ns, 50 * kUs);
  EXPECT_NEAR(row.algorithm_bandwidth, 2e10, 1e4);
  EXPECT_NEAR(row.bus_bandwidth, 3e10, 1e4);
  EXPECT_EQ(report.classes[0], (CommClass{GroupAxis::dp, Kind::all_reduce, Purpose::grads, 1'000'000, 4, false}));
  EXPECT_EQ(report.by_rank[3].last, 1U);
  EXPECT_EQ(report.by_rank[3].caused_ns, 270 * kUs);
  EXPECT_EQ(report.by_rank[3].waited_ns, 0);
  EXPECT_EQ(report.by_rank[1].waited_ns, 90 * kUs);
  EXPECT_EQ(report.by_rank[1].caused_ns, 0);
}

// Traces of other programs: nothing tells which axis a group is of.
TEST(Communication, CountsLatenessInAnyCollectiveWithoutAMesh) {
  MadeRun made({.dp = 2});
  const std::int32_t group = made.group("group 7", {0, 1});
  made.run.groups[0].axis = GroupAxis::other;
  const std::uint32_t sum = made.info(Kind::all_reduce, Purpose::none, group, 64);
  const std::uint32_t send = made.info(Kind::send, Purpose::none, group, 8);
  for (int r = 0; r < 2; ++r) {
    made.add(r, sum, {r * 10 * kUs, 50 * kUs, 0, kNoMicrobatch, State::ended});
    made.add(r, send, {(60 + r * 10) * kUs, 90 * kUs, 1, kNoMicrobatch, State::ended});
  }
  EXPECT_EQ(report_of(made.run).by_rank[1].collectives, 0U) << "in a run of ours it is neither tp nor dp";
  made.run.has_mesh = false;
  const CommReport report = report_of(made.run);
  EXPECT_EQ(report.by_rank[1].collectives, 1U);
  EXPECT_EQ(report.by_rank[1].last, 1U);
  EXPECT_EQ(report.by_rank[1].caused_ns, 10 * kUs);
  EXPECT_EQ(report.by_rank[0].waited_ns, 10 * kUs);
}

TEST(Communication, ExcludesOperationsWhoseMembersDisagree) {
  MadeRun made({.dp = 2});
  const std::int32_t group = made.group("dp[pp 0 tp 0]", {0, 1});
  made.add(0, made.info(Kind::all_reduce, Purpose::grads, group, 64), {0, 10, 0, kNoMicrobatch, State::ended});
  made.add(1, made.info(Kind::all_reduce, Purpose::grads, group, 128), {0, 10, 0, kNoMicrobatch, State::ended});
  const CommReport report = report_of(made.run);
  std::uint64_t complete = 0;
  for (const CommRow& row : report.rows) complete += row.complete;
  EXPECT_EQ(complete, 0U);
  EXPECT_TRUE(report_of(MadeRun({.dp = 1}).run).rows.empty());
}

TEST(Communication, PercentilesOfMany) {
  MadeRun made({.pp = 2});
  const std::int32_t group = made.group("pp.fwd[dp 0 tp 0] 0>1", {0, 1});
  const std::uint32_t send = made.info(Kind::send, Purpose::forward, group, 1000);
  const std::uint32_t recv = made.info(Kind::recv, Purpose::forward, group, 1000);
  for (std::int64_t i = 0; i < 100; ++i) {  // transfers of 1 .. 100 us
    const std::int64_t at = i * 1000 * kUs;
    made.add(0, send, {at + 200 * kUs, at + (201 + i) * kUs, static_cast<std::uint32_t>(i), 0, State::ended});
    made.add(1, recv, {at, at + (201 + i) * kUs, static_cast<std::uint32_t>(i), 0, State::ended});
  }
  const CommReport report = report_of(made.run);
  ASSERT_EQ(report.rows.size(), 1U) << "both ends are one row";
  EXPECT_EQ(report.rows[0].complete, 100U);
  EXPECT_NEAR(report.rows[0].transfer_p50_s, 50e-6, 1e-10);
  EXPECT_NEAR(report.rows[0].transfer_p99_s, 99e-6, 1e-10);
  EXPECT_NEAR(report.rows[0].bus_bandwidth, 1000 / 50e-6, 10);
  EXPECT_EQ(report.by_rank[0].collectives, 0U) << "a sender comes after its receiver by nature";
  ASSERT_EQ(report.edges.size(), 1U);
  EXPECT_EQ(report.edges[0].from_stage, 0);
  EXPECT_EQ(report.edges[0].to_stage, 1);
}

TEST(Communication, ASlowLinkStandsOut) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 0.1);
    PipelineSpec spec;
    spec.mesh = {.dp = 4, .pp = 3, .tp = 2};
    spec.steps = 5;
    spec.slowness = [&](int, int) { return noise(random) / 10; };
    const int slow = spec.mesh.rank({.dp = 2, .pp = 1, .tp = 1});
    bool is_slow = false;
    spec.link_slowness = [&](int from, int) { return noise(random) + (is_slow && from == slow ? 0.5 : 0); };
    EXPECT_TRUE(report_of(play_pipeline(spec)).suspects.empty()) << seed;
    is_slow = true;
    const RunTrace run = play_pipeline(spec);
    const CommReport report = report_of(run);
    ASSERT_EQ(report.suspects.size(), 2U) << "its sends forward and backward";
    for (const std::uint32_t suspect : report.suspects) {
      const CommRow& row = report.rows[suspect];
      EXPECT_EQ(run.groups[static_cast<std::size_t>(row.group)].ranks[0], slow);
      EXPECT_NEAR(row.ratio, 1.5, 0.2);
    }
    ASSERT_EQ(report.edges.size(), 4U);
    for (const EdgeSummary& edge : report.edges) EXPECT_EQ(edge.channels, 8U);
  }
}

TEST(Communication, TheSlowRankComesLast) {
  PipelineSpec spec;
  spec.mesh = {.dp = 4, .pp = 2, .tp = 1};
  spec.slowness = [](int rank, int) { return rank == 2 ? 0.2 : 0.0; };
  const CommReport report = report_of(play_pipeline(spec));
  for (const std::size_t r : {0U, 1U, 3U, 4U, 5U, 6U, 7U})
    EXPECT_LT(report.by_rank[r].caused_ns, report.by_rank[2].caused_ns) << r;
}

TEST(SizeBuckets, AreOfPowersOfTwoWithTheFormulaOfNcclTests) {
  CommReport report;
  report.classes = {{.axis = GroupAxis::dp, .kind = Kind::all_reduce, .size_bytes = 5000, .members = 4},
                    {.axis = GroupAxis::dp, .kind = Kind::all_reduce, .size_bytes = 8191, .members = 4},
                    {.axis = GroupAxis::dp, .kind = Kind::all_reduce, .size_bytes = 8192, .members = 4},
                    {.axis = GroupAxis::dp, .kind = Kind::all_gather, .size_bytes = 8192, .members = 4},
                    {.axis = GroupAxis::dp, .kind = Kind::all_reduce, .size_bytes = -1, .members = 4}};
  for (std::uint32_t c = 0; c < report.classes.size(); ++c)
    report.rows.push_back({.of_class = c, .operations = 2, .complete = 2, .transfer_ns = 2000});
  const std::vector<SizeBucket> buckets = size_buckets(report);
  ASSERT_EQ(buckets.size(), 3U);
  const auto bucket = [&](Kind kind, std::int64_t bytes) {
    return *std::ranges::find_if(buckets,
                                 [&](const SizeBucket& b) { return b.kind == kind && b.least_bytes == bytes; });
  };
  EXPECT_EQ(bucket(Kind::all_reduce, 4096).operations, 4U);
  EXPECT_DOUBLE_EQ(bucket(Kind::all_reduce, 4096).bus_bandwidth, 2 * (5000.0 + 8191) / 4e-6 * 1.5);
  EXPECT_DOUBLE_EQ(bucket(Kind::all_reduce, 8192).bus_bandwidth, 8192 / 1e-6 * 1.5);
  EXPECT_DOUBLE_EQ(bucket(Kind::all_gather, 8192).bus_bandwidth, 8192 / 1e-6 * 0.75);
}

}  // namespace
}  // namespace ms::tracepp
