// Which events are one operation.
#include "tracepp/matching.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace ms::tracepp {
namespace {

struct Made {
  RunTrace trace;
  Tables tables{trace};

  explicit Made(int ranks) {
    for (int r = 0; r < ranks; ++r) {
      RankTrace rank;
      rank.rank = r;
      trace.ranks.push_back(std::move(rank));
    }
  }
  void add(int rank, Kind kind, std::int32_t group, std::uint32_t sequence, State state = State::ended) {
    Event event{.begin_ns = 1000, .detail = sequence, .state = state};
    event.info = tables.info({.kind = kind, .group = group});
    trace.ranks[static_cast<std::size_t>(rank)].events.push_back(event);
  }
};

std::vector<std::uint32_t> ranks_of(const Matches& matches, std::uint32_t operation) {
  std::vector<std::uint32_t> ranks;
  for (const Member& member : matches.members_of(operation)) ranks.push_back(member.rank);
  return ranks;
}
using Ranks = std::vector<std::uint32_t>;

TEST(Matching, HandlesAnEmptyTrace) {
  const Matches matches = match_operations(RunTrace());
  EXPECT_TRUE(matches.operations.empty());
  EXPECT_TRUE(matches.problems.empty());
  EXPECT_EQ(matches.first_of.size(), 1U);
}

TEST(Matching, JoinsMembersByNumber) {
  Made run(3);
  const std::int32_t dp = run.tables.group({"dp", {0, 1, 2}, GroupAxis::dp});
  const std::int32_t idle = run.tables.group({"idle", {0, 1}, GroupAxis::other});
  const std::int32_t pp = run.tables.group({"pp.fwd 0>2", {0, 2}, GroupAxis::pp});
  for (const int r : {0, 1, 2}) {
    for (const std::uint32_t n : {7U, 8U, 9U}) {
      if (r == 1 && n == 9) continue;  // never came
      run.add(r, Kind::all_reduce, dp, n, n == 9 ? State::begun : State::ended);
    }
    run.add(r, Kind::forward, -1, 55);
  }
  run.add(2, Kind::recv, pp, 0);
  run.add(0, Kind::send, pp, 0);
  const Matches matches = match_operations(run.trace);
  ASSERT_EQ(matches.operations.size(), 4U);
  EXPECT_EQ(ranks_of(matches, matches.find(dp, 7)), (Ranks{0, 1, 2}));
  EXPECT_EQ(ranks_of(matches, matches.find(dp, 9)), (Ranks{0, 2}));
  EXPECT_EQ(ranks_of(matches, matches.find(pp, 0)), (Ranks{0, 2}));
  EXPECT_EQ(matches.find(dp, 10), Matches::kNone);
  EXPECT_EQ(matches.find(dp, 6), Matches::kNone);
  EXPECT_EQ(matches.find(idle, 0), Matches::kNone);
  EXPECT_EQ(matches.of_group(idle).first, matches.of_group(idle).end);
  EXPECT_EQ(matches.of_group(dp).end - matches.of_group(dp).first, 3U);
  const auto pair = matches.members_of(matches.find(pp, 0));
  EXPECT_EQ(run.trace.info(event_of(run.trace, pair[0])).kind, Kind::send);
  EXPECT_EQ(run.trace.info(event_of(run.trace, pair[1])).kind, Kind::recv);
  EXPECT_TRUE(matches.problems.empty());
}

// Numbers far apart, as after a counter went round or in bad data, cost no memory.
TEST(Matching, JoinsNumbersThatAreFarApart) {
  Made run(2);
  const std::int32_t group = run.tables.group({"dp", {}, GroupAxis::dp});
  const std::vector<std::uint32_t> numbers{0, 3, 0x40000000, 0xfffffffe};
  for (const std::uint32_t n : numbers) run.add(0, Kind::all_gather, group, n);
  for (const std::uint32_t n : {0xfffffffeU, 0U}) run.add(1, Kind::all_gather, group, n);
  const Matches matches = match_operations(run.trace);
  ASSERT_EQ(matches.operations.size(), 4U);
  for (std::size_t o = 0; o < 4; ++o) EXPECT_EQ(matches.operations[o].sequence, numbers[o]);
  EXPECT_EQ(ranks_of(matches, matches.find(group, 0)), (Ranks{0, 1}));
  EXPECT_EQ(ranks_of(matches, matches.find(group, 3)), (Ranks{0}));
  EXPECT_EQ(ranks_of(matches, matches.find(group, 0xfffffffe)), (Ranks{0, 1}));
}

TEST(Matching, CountsEventsThatDoNotFit) {
  Made run(3);
  const std::int32_t pair = run.tables.group({"pair", {0, 1}, GroupAxis::pp});
  run.add(0, Kind::send, pair, 4);
  run.add(0, Kind::send, pair, 4);
  run.add(2, Kind::recv, pair, 4);          // is no member
  run.add(1, Kind::recv, -1, 4);            // of no group
  run.add(1, Kind::recv, pair, kNoDetail);  // without a number
  run.add(1, Kind::recv, 99, 4);            // of a group that is not there
  run.trace.ranks[1].events.push_back({.detail = 4, .info = 12345});
  const Matches matches = match_operations(run.trace);
  ASSERT_EQ(matches.operations.size(), 1U);
  EXPECT_EQ(ranks_of(matches, 0), (Ranks{0}));
  EXPECT_EQ(matches.members_of(0)[0].event, 0U);
  EXPECT_EQ(matches.problems.at("message with a number that its rank had before"), 1U);
  EXPECT_EQ(matches.problems.at("message of a rank that is not in its group"), 1U);
  EXPECT_EQ(matches.problems.at("message without a group or a number"), 3U);
}

// Enough for two threads, in any order on a rank: as a map would match it.
TEST(Matching, AgreesWithAMap) {
  constexpr int kRanks = 24, kGroups = 9;
  Made run(kRanks);
  std::mt19937 random(5);
  for (int g = 0; g < kGroups; ++g) run.tables.group({"g" + std::to_string(g), {}, GroupAxis::other});
  std::map<std::pair<std::int32_t, std::uint32_t>, std::set<std::uint32_t>> truth;
  std::set<std::tuple<int, std::int32_t, std::uint32_t>> seen;
  std::uint64_t twice = 0;
  for (int i = 0; i < 120'000; ++i) {
    const int rank = static_cast<int>(random() % kRanks);
    const auto group = static_cast<std::int32_t>(random() % kGroups);
    const std::uint32_t number = static_cast<std::uint32_t>(random() % 1500) * (group == 3 ? 100'000 : 1);
    run.add(rank, Kind::all_reduce, group, number);
    truth[{group, number}].insert(static_cast<std::uint32_t>(rank));
  }
  for (const RankTrace& rank : run.trace.ranks) {
    for (const Event& event : rank.events)
      twice += !seen.insert({rank.rank, run.trace.info(event).group, event.detail}).second;
  }
  const Matches matches = match_operations(run.trace);
  ASSERT_EQ(matches.operations.size(), truth.size());
  std::size_t o = 0;
  std::uint64_t members = 0;
  for (const auto& [key, ranks] : truth) {
    EXPECT_EQ(matches.operations[o].group, key.first);
    EXPECT_EQ(matches.operations[o].sequence, key.second);
    EXPECT_EQ(ranks_of(matches, static_cast<std::uint32_t>(o)), Ranks(ranks.begin(), ranks.end()));
    for (const Member& member : matches.members_of(o))
      EXPECT_EQ(event_of(run.trace, member).detail, matches.operations[o].sequence);
    members += ranks.size();
    ++o;
  }
  EXPECT_EQ(matches.members.size(), members);
  EXPECT_EQ(members + twice, 120'000U);
}

}  // namespace
}  // namespace ms::tracepp
