// Alignment against runs whose true times are known.
#include "tracepp/clock/align.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "clock_run.h"

namespace ms::tracepp {
namespace {

using synthetic::ClockRun;
using synthetic::ClockRunOptions;

constexpr std::int64_t kGoalNs = 20'000;

Alignment align(RunTrace& trace) { return tracepp::align(trace, match_operations(trace)); }

struct Copy {
  std::vector<std::vector<Event>> events;
  explicit Copy(const RunTrace& trace) {
    for (const RankTrace& rank : trace.ranks) events.push_back(rank.events);
  }
};
// A rank's own times keep their order, and nothing ends before it began.
void expect_order_kept(const Copy& before, const RunTrace& after) {
  for (std::size_t r = 0; r < after.ranks.size(); ++r) {
    std::vector<std::pair<std::int64_t, std::int64_t>> times;
    for (std::size_t e = 0; e < before.events[r].size(); ++e) {
      const Event &old = before.events[r][e], &now = after.ranks[r].events[e];
      ASSERT_GE(now.duration_ns, 0);
      times.push_back({old.begin_ns, now.begin_ns});
      times.push_back({old.end_ns(), now.end_ns()});
    }
    std::ranges::sort(times);
    for (std::size_t i = 1; i < times.size(); ++i) ASSERT_LE(times[i - 1].second, times[i].second) << "rank " << r;
  }
}

struct Row {
  const char* name;
  ClockRunOptions options;
  ClockSource source = ClockSource::probes;  // of most hosts
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class Aligned : public ::testing::TestWithParam<Row> {};

TEST_P(Aligned, IsExactAndInOrder) {
  ClockRun run(GetParam().options);
  EXPECT_GT(run.error().p50_ns, 1'000'000);  // there is something to do
  EXPECT_GT(run.violated(), 0U);
  const Copy before(run.trace);
  const Alignment alignment = align(run.trace);
  EXPECT_LE(run.error().p99_ns, kGoalNs);
  EXPECT_EQ(run.violated(), 0U);
  EXPECT_EQ(alignment.repair.violated_after, 0U);
  EXPECT_TRUE(alignment.trusted) << alignment.doubt;
  EXPECT_EQ(alignment.hosts.size(), static_cast<std::size_t>(GetParam().options.hosts));
  EXPECT_EQ(alignment.hosts.back().source, GetParam().source);
  EXPECT_EQ(alignment.hosts.front().source, ClockSource::root);
  EXPECT_EQ(alignment.hosts.front().offset_ns, 0);
  EXPECT_LT(alignment.after.p50_ns, alignment.before.p50_ns);
  EXPECT_EQ(alignment.bad_probes, 0U);
  expect_order_kept(before, run.trace);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, Aligned,
    ::testing::Values(
        Row{"two_hosts", {.hosts = 2}}, Row{"jitter_5", {.hosts = 50, .ranks_per_host = 2, .jitter_us = 5}},
        Row{"jitter_50", {.hosts = 50, .ranks_per_host = 2, .jitter_us = 50}},
        Row{"late_answers", {.hosts = 50, .jitter_us = 50, .outliers = 0.3}},
        Row{"two_thousand", {.hosts = 2000, .steps = 6, .jitter_us = 50, .samples = 4}},
        Row{"short_messages", {.hosts = 100, .jitter_us = 50, .transfer_us = 3, .end_jitter_us = 2}},
        Row{"no_probes", {.hosts = 60, .probe_every_s = 0}, ClockSource::collectives},
        Row{"no_probes_no_wall", {.hosts = 60, .probe_every_s = 0, .wall_error_s = -1}, ClockSource::collectives},
        Row{"no_probes_no_world", {.hosts = 60, .probe_every_s = 0, .world_group = false}, ClockSource::collectives},
        Row{"probed_once", {.hosts = 60, .span_s = 240, .probe_every_s = 1e6}, ClockSource::collectives},
        Row{"probed_twice", {.hosts = 60, .span_s = 240, .probe_every_s = 200}},
        Row{"clock_set", {.hosts = 60, .set_host = 9}},
        Row{"clock_set_many_steps", {.hosts = 20, .steps = 1500, .set_host = 9}}),
    [](const auto& row) { return row.param.name; });

TEST(Align, LeavesOneHostUnchanged) {
  ClockRun run({.hosts = 1, .ranks_per_host = 5});
  run.trace.ranks[2].sums.push_back({.step = 3, .begin_ns = 17, .end_ns = 19, .seconds = {}});
  const Copy before(run.trace);
  const Alignment alignment = align(run.trace);
  for (std::size_t r = 0; r < run.trace.ranks.size(); ++r) {
    for (std::size_t e = 0; e < before.events[r].size(); ++e) {
      EXPECT_EQ(run.trace.ranks[r].events[e].begin_ns, before.events[r][e].begin_ns);
      EXPECT_EQ(run.trace.ranks[r].events[e].duration_ns, before.events[r][e].duration_ns);
    }
  }
  EXPECT_EQ(run.trace.ranks[2].sums[0].end_ns, 19);
  ASSERT_EQ(alignment.hosts.size(), 1U);
  EXPECT_EQ(alignment.hosts[0].ranks, 5U);
  EXPECT_EQ(alignment.repair.moved_events, 0U);
  EXPECT_TRUE(alignment.trusted);
}

TEST(Align, HandlesNoRankAndOneRank) {
  RunTrace nothing;
  EXPECT_TRUE(align(nothing).hosts.empty());
  RunTrace bare;
  bare.ranks.emplace_back();
  EXPECT_TRUE(align(bare).trusted);
  ClockRun alone({.hosts = 1});
  EXPECT_EQ(align(alone.trace).hosts.size(), 1U);
  EXPECT_EQ(alone.error().max_ns, 0);
}

TEST(Align, UsesCollectivesForAHostWithoutProbes) {
  for (const int missing : {7, 1}) {  // a leaf; one over which others reach the root
    ClockRun run({.hosts = 60, .unprobed_host = missing});
    const Alignment alignment = align(run.trace);
    EXPECT_EQ(alignment.hosts[static_cast<std::size_t>(missing)].source, ClockSource::collectives);
    EXPECT_EQ(alignment.hosts[20].source, ClockSource::probes);
    EXPECT_LE(run.error_of_host("host" + std::to_string(missing)).p99_ns, kGoalNs);
    EXPECT_LE(run.error().p99_ns, kGoalNs);
    EXPECT_EQ(run.violated(), 0U);
  }
}

// Runs too short to tell a drift, on busy hosts: what is said of how exact the clocks are holds.
TEST(Align, BoundsHold) {
  for (const double span_s : {0.2, 0.5, 2.0, 30.0}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      ClockRun run({.hosts = 6,
                    .steps = 12,
                    .span_s = span_s,
                    .jitter_us = 100,
                    .probe_every_s = span_s * 0.6,
                    .samples = 4,
                    .seed = seed});
      const Alignment alignment = align(run.trace);
      for (const HostClock& host : alignment.hosts) {
        EXPECT_LE(run.error_of_host(host.host).p50_ns, host.bound_ns + 1000)
            << host.host << ", " << span_s << " s, seed " << seed << ", source " << to_string(host.source);
        EXPECT_LE(host.expected_ns, host.bound_ns);
      }
    }
  }
}

// Drift that no line fits: between two probes it is interpolated.
TEST(Align, FollowsChangingDrift) {
  ClockRun run({.hosts = 30, .wander_ppm = 0.5, .jitter_us = 5});
  align(run.trace);
  EXPECT_LE(run.error().p99_ns, kGoalNs);
  EXPECT_EQ(run.violated(), 0U);
}

TEST(Align, MovesAllTimes) {
  ClockRun run({.hosts = 2});
  RankTrace& rank = run.trace.ranks[1];
  rank.sums.push_back(
      {.step = 0, .begin_ns = rank.events[0].begin_ns, .end_ns = rank.events[3].end_ns(), .seconds = {}});
  rank.events.push_back({.begin_ns = 0, .info = rank.events[0].info, .state = State::issued});
  const std::int64_t clock_ns = rank.clock_ns;
  const Alignment alignment = align(run.trace);
  EXPECT_EQ(rank.sums[0].begin_ns, rank.events[0].begin_ns);
  EXPECT_EQ(rank.sums[0].end_ns, rank.events[3].end_ns());
  EXPECT_EQ(rank.last_flush_ns, rank.events[rank.events.size() - 2].end_ns());
  EXPECT_EQ(rank.events.back().begin_ns, 0);  // has none
  EXPECT_NEAR(static_cast<double>(rank.clock_ns - clock_ns), static_cast<double>(alignment.hosts[1].offset_ns), 5e8);
  EXPECT_NE(rank.clock_ns, clock_ns);
}

// ---- what ties nothing, or lies

RunTrace two_hosts() {
  RunTrace trace;
  for (const int r : {0, 1}) {
    RankTrace rank;
    rank.rank = r;
    rank.host = r == 0 ? "a" : "b";
    rank.clock_ns = r == 0 ? 1000 : 5000;
    rank.realtime_ns = 1'000'000'000'000;
    rank.events.push_back({.begin_ns = 10'000, .duration_ns = 10, .info = 0});
    trace.ranks.push_back(std::move(rank));
  }
  trace.infos.push_back({.kind = Kind::forward});
  return trace;
}

TEST(Align, DoesNotTrustTheWallClock) {
  RunTrace trace = two_hosts();
  const Alignment alignment = align(trace);
  EXPECT_EQ(alignment.hosts[1].source, ClockSource::wall);
  EXPECT_EQ(trace.ranks[1].events[0].begin_ns, 6000);
  EXPECT_FALSE(alignment.trusted);
  EXPECT_EQ(alignment.doubt, "only the wall clock ties 1 of 2 clocks to the others, among them b");
}

TEST(Align, LeavesUnknownClocksAndDoesNotTrustThem) {
  RunTrace trace = two_hosts();
  trace.ranks[1].clock_ns = trace.ranks[1].realtime_ns = 0;
  const Alignment alignment = align(trace);
  EXPECT_EQ(alignment.hosts[1].source, ClockSource::none);
  EXPECT_EQ(trace.ranks[1].events[0].begin_ns, 10'000);
  EXPECT_EQ(alignment.doubt, "nothing ties 1 of 2 clocks to the others, among them b");
}

TEST(Align, CountsContradictoryProbes) {
  ClockRun run({.hosts = 2});
  std::vector<Probe>& probes = run.trace.ranks[1].probes;
  const Probe good = probes[0];
  const auto add = [&](auto change) {
    Probe probe = good;
    change(probe);
    probes.insert(probes.begin(), probe);
  };
  add([](Probe& p) { p.peer = 77; });
  add([](Probe& p) { p.answered_ns = p.asked_ns - 1; });
  add([](Probe& p) { p.peer_replied_ns += 60'000'000'000; });  // longer than the round trip
  add([](Probe& p) { p.asked_ns = INT64_MIN; });
  add([](Probe& p) { p.peer_replied_ns = INT64_MAX; });
  add([](Probe& p) { p.round = -1; });
  add([](Probe& p) { p.answered_ns += 3'600'000'000'000; });
  EXPECT_EQ(align(run.trace).bad_probes, 7U);
  EXPECT_LE(run.error().p99_ns, kGoalNs);
}

// Probes round a circle, one link of which is late one way: the tree goes the other way.
TEST(Align, HandlesCyclesOfProbes) {
  ClockRun run({.hosts = 3});
  const std::vector<Probe> there = run.trace.ranks[1].probes;  // of rank 0's clock
  for (const Probe& p : there) {
    // The same moments seen from host 2 by way of host 1 would be right; these are 5 ms late one way.
    run.trace.ranks[2].probes.push_back(
        {.peer = 1,
         .round = p.round,
         .asked_ns = run.trace.ranks[2].probes[0].asked_ns + (p.asked_ns - there[0].asked_ns),
         .answered_ns = run.trace.ranks[2].probes[0].asked_ns + (p.answered_ns - there[0].asked_ns) + 5'000'000,
         .peer_heard_ns = p.asked_ns + 5'010'000,
         .peer_replied_ns = p.asked_ns + 5'011'000});
  }
  align(run.trace);
  EXPECT_LE(run.error().p99_ns, kGoalNs);
}

TEST(Align, GivesARebootedHostTwoClocks) {
  RunTrace trace = two_hosts();
  trace.ranks[1].host = "a";
  EXPECT_EQ(clocks_of(trace).clocks.size(), 1U);  // 4 us apart: the wall clock was read a little later
  trace.ranks[1].clock_ns += 60'000'000'000;
  EXPECT_EQ(clocks_of(trace).clocks.size(), 2U);
  trace.ranks[1].clock_ns = trace.ranks[1].realtime_ns = 0;
  EXPECT_EQ(clocks_of(trace).clocks.size(), 1U);
  trace.ranks[0].host = trace.ranks[1].host = "";  // not known: perhaps not the same
  EXPECT_EQ(clocks_of(trace).clocks.size(), 2U);
}

// Two operations that each rank saw in another order: nothing can put that right, and it ends all the same.
TEST(Align, SurvivesContradictoryOrders) {
  RunTrace trace = two_hosts();
  Tables tables(trace);
  const std::uint32_t info = tables.info({.kind = Kind::barrier, .group = tables.group({"g", {0, 1}, GroupAxis::dp})});
  for (RankTrace& rank : trace.ranks) {
    rank.events.clear();
    for (const std::uint32_t i : {0U, 1U}) {
      const std::uint32_t number = rank.rank == 0 ? i : 1 - i;
      rank.events.push_back({.begin_ns = 1'000'000 + 10'000 * i, .duration_ns = 1000, .detail = number, .info = info});
    }
  }
  const Alignment alignment = align(trace);
  EXPECT_EQ(alignment.repair.orders, 4U);
  EXPECT_GT(alignment.repair.violated_before, 0U);
  EXPECT_GT(alignment.repair.violated_after, 0U);
  EXPECT_FALSE(alignment.trusted);
}

// ---- repair alone: clocks that are taken as they are

struct Pair {
  RunTrace trace = two_hosts();
  Tables tables{trace};
  std::int32_t group = tables.group({"pp.fwd 0>1", {0, 1}, GroupAxis::pp});
  void add(int rank, Kind kind, std::uint32_t number, std::int64_t begin, std::int64_t end,
           State state = State::ended) {
    trace.ranks[static_cast<std::size_t>(rank)].events.push_back(
        {.begin_ns = begin,
         .duration_ns = end - begin,
         .detail = number,
         .info = tables.info({.kind = kind, .group = trace::is_comm(kind) ? group : -1}),
         .state = state});
  }
  Repair repair() { return repair_orders(trace, match_operations(trace), {0, 1}); }
  const Event& event(int rank, std::size_t i) { return trace.ranks[static_cast<std::size_t>(rank)].events[i + 1]; }
};

TEST(Repair, MovesTheEndAndFadesOut) {
  Pair pair;
  pair.add(0, Kind::send, 0, 20'000, 30'000);
  pair.add(1, Kind::recv, 0, 18'000, 19'000);  // 1,000 too early
  pair.add(1, Kind::forward, 0, 19'500, 20'500);
  pair.add(1, Kind::forward, 0, 21'000, 25'000);  // the clock is right again
  const Repair repair = pair.repair();
  EXPECT_EQ(repair.orders, 1U);
  EXPECT_EQ(repair.violated_before, 1U);
  EXPECT_EQ(repair.violated_after, 0U);
  EXPECT_EQ(repair.moved_events, 2U);
  EXPECT_EQ(repair.largest_ns, 1000);
  EXPECT_EQ(pair.event(1, 0).begin_ns, 18'000);
  EXPECT_EQ(pair.event(1, 0).end_ns(), 20'000);
  EXPECT_EQ(pair.event(1, 1).begin_ns, 20'250);
  EXPECT_EQ(pair.event(1, 1).end_ns(), 20'750);
  EXPECT_EQ(pair.event(1, 2).begin_ns, 21'000);
  EXPECT_EQ(pair.event(1, 2).end_ns(), 25'000);
  EXPECT_EQ(pair.event(0, 0).begin_ns, 20'000);
}

// What is moved moves the begin of the next message, and so the end of that elsewhere.
TEST(Repair, PropagatesMoves) {
  Pair pair;
  pair.add(0, Kind::send, 0, 20'000, 30'000);
  pair.add(1, Kind::recv, 0, 18'000, 19'000);
  pair.add(1, Kind::barrier, 1, 19'200, 40'000);
  pair.add(0, Kind::barrier, 1, 10'000, 20'050);  // fine, until the other's begin moves to 20,100
  const Repair repair = pair.repair();
  EXPECT_EQ(repair.violated_before, 1U);
  EXPECT_EQ(repair.violated_after, 0U);
  EXPECT_EQ(pair.event(1, 1).begin_ns, 20'100);
  EXPECT_GE(pair.event(0, 1).end_ns(), 20'100);
}

TEST(Repair, ChecksOnlyRealDependencies) {
  Pair pair;
  pair.add(0, Kind::send, 0, 50'000, 60'000);
  pair.add(1, Kind::recv, 0, 18'000, 18'000, State::begun);  // still waits
  pair.add(0, Kind::recv, 1, 70'000, 80'000);                // a send may end before its receive begins
  pair.add(1, Kind::send, 1, 20'000, 21'000);
  pair.add(0, Kind::barrier, 2, 90'000, 99'000);  // whoever has not begun keeps nobody here
  pair.add(1, Kind::barrier, 2, 0, 0, State::issued);
  const Repair repair = pair.repair();
  EXPECT_EQ(repair.orders, 1U);
  EXPECT_EQ(repair.violated_before, 0U);
  EXPECT_EQ(repair.moved_events, 0U);
}

TEST(Repair, ABroadcastWaitsForItsRoot) {
  Pair pair;
  for (const int root : {0, 1}) {
    const std::uint32_t info = pair.tables.info({.kind = Kind::broadcast, .group = pair.group, .root = root});
    const auto number = static_cast<std::uint32_t>(root);
    for (const std::size_t r : {0U, 1U}) {
      const std::int64_t begin = r == 0 ? 50'000 + 100'000 * root : 10'000 + 100'000 * root;
      pair.trace.ranks[r].events.push_back({.begin_ns = begin, .duration_ns = 1000, .detail = number, .info = info});
    }
  }
  const Repair repair = pair.repair();
  EXPECT_EQ(repair.orders, 2U);
  EXPECT_EQ(repair.violated_before, 1U);  // rank 1's end of what comes from rank 0; not the other way round
  EXPECT_EQ(pair.event(1, 0).end_ns(), 50'000);
}

// ---- maps

TEST(ClockMap, Composes) {
  std::mt19937_64 random(3);
  const auto some = [&](double most) { return std::uniform_real_distribution(-most, most)(random); };
  const auto make = [&](std::int64_t around) {
    std::vector<ClockMap::Piece> pieces;
    std::int64_t value = std::llround(some(1e12));
    for (int p = 0; p < 4; ++p) {
      const std::int64_t from = around + std::int64_t{p} * 10'000'000'000 + std::llround(some(2e9));
      pieces.push_back(
          {.from_ns = from, .at_ns = from, .shift_ns = value + (p == 2 ? 300'000'000 : 0), .drift = some(1e-4)});
      value = pieces.back().shift_ns + std::llround(pieces.back().drift * 1e10);
    }
    return ClockMap(pieces);
  };
  for (int trial = 0; trial < 50; ++trial) {
    const ClockMap first = make(0), second = make(first(0) + std::llround(some(5e9)));
    const ClockMap both = first.then(second);
    for (int i = 0; i < 200; ++i) {
      const auto t = std::llround(15e9 + some(40e9));
      EXPECT_NEAR(static_cast<double>(both(t) - second(first(t))), 0, 3) << "trial " << trial << " at " << t;
    }
  }
  const ClockMap only = make(0), same;
  EXPECT_EQ(only.then(same)(123), only(123));
  EXPECT_EQ(same.then(only)(123), only(123));
  EXPECT_TRUE(same.then(same).is_identity());
}

TEST(ClockMap, IsMonotonic) {
  const ClockMap map(std::vector<ClockMap::Piece>{{}, {.from_ns = 1000, .at_ns = 1000, .shift_ns = -300}});
  EXPECT_EQ(map(999), 999);
  EXPECT_EQ(map(1200), 999);
  EXPECT_EQ(map(1400), 1100);
}

}  // namespace
}  // namespace ms::tracepp
