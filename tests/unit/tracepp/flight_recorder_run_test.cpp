// Relating the Flight Recorder dumps of a run: groups made again, numbers of transfers, failed operations, old dumps.
#include "tracepp/read/flight_recorder_run.h"

#include <gmock/gmock.h>

#include "tracepp/read/process_groups.h"

namespace ms::tracepp {
namespace {

constexpr std::int64_t kSecond_ns = 1'000'000'000;

struct DumpedRun {
  RunTrace trace;
  Tables tables{trace};
  std::int32_t all = -1;

  explicit DumpedRun(int ranks) {
    std::vector<int> members;
    for (int i = 0; i < ranks; ++i) members.push_back(i);
    all = tables.group({.name = "default_pg 0", .ranks = members, .axis = GroupAxis::world});
    for (const int rank : members) trace.ranks.emplace_back().rank = rank;
  }
  std::int32_t channel(int from, int to) {
    return tables.group(ProcessGroups::channel(trace.groups[static_cast<std::size_t>(all)], from, to));
  }
  void add(int rank, std::int32_t group, std::uint32_t number, State state, Kind kind = Kind::all_reduce,
           std::int64_t duration_ns = 1) {
    RankTrace& it = trace.ranks[static_cast<std::size_t>(rank)];
    const auto begin_ns = static_cast<std::int64_t>(it.events.size() + 1) * kSecond_ns;
    it.events.push_back({.begin_ns = begin_ns,
                         .duration_ns = state == State::ended ? duration_ns : 0,
                         .detail = number,
                         .info = tables.info({.kind = kind, .group = group}),
                         .state = state});
    it.last_flush_ns = 100 * kSecond_ns;
  }
  std::vector<std::uint32_t> numbers(int rank, std::int32_t group) const {
    std::vector<std::uint32_t> found;
    for (const Event& event : trace.ranks[static_cast<std::size_t>(rank)].events)
      if (trace.info(event).group == group) found.push_back(event.detail);
    return found;
  }
};

TEST(RecorderRun, ASecondGroupOfOneNameIsAnother) {
  DumpedRun run(3);
  for (int rank = 0; rank < 3; ++rank)
    for (std::uint32_t i = 1; i <= 4; ++i) run.add(rank, run.all, i, State::ended);
  for (int rank = 0; rank < 2; ++rank) run.add(rank, run.all, 1, State::begun);  // rank 2 never does
  relate_dumps(run.trace);
  EXPECT_THAT(run.numbers(0, run.all), testing::ElementsAre(1));
  EXPECT_THAT(run.numbers(2, run.all), testing::IsEmpty());
  ASSERT_EQ(run.trace.groups.size(), 2U);
  EXPECT_EQ(run.trace.groups[1].name, "default_pg 0 (destroyed)");
  EXPECT_THAT(run.numbers(2, 1), testing::ElementsAre(1, 2, 3, 4));
}

// Rank 0 has lost the oldest entries: its first two sends among them.
TEST(RecorderRun, CollectivesTellWhichTransfersMeet) {
  for (const bool has_collectives : {true, false}) {
    DumpedRun run(2);
    const std::int32_t channel = run.channel(0, 1);
    run.trace.ranks[0].is_partial = true;
    for (std::uint32_t i = 0; i < 5; ++i) {
      const State state = i < 4 ? State::ended : State::begun;
      if (i >= 2) run.add(0, channel, i - 2, i == 3 ? State::ended : state, Kind::send);
      run.add(1, channel, i, i == 3 ? State::begun : state, Kind::recv);
      if (has_collectives && i >= 2)
        for (int rank = 0; rank < 2; ++rank) run.add(rank, run.all, i, State::ended);
    }
    relate_dumps(run.trace);
    // Without collectives, that the newest ones which ended met is a guess, and here it is wrong.
    EXPECT_EQ(run.trace.groups[static_cast<std::size_t>(channel)].is_guessed, !has_collectives);
    EXPECT_THAT(run.numbers(1, channel), testing::ElementsAre(0, 1, 2, 3, 4));
    EXPECT_THAT(run.numbers(0, channel),
                has_collectives ? testing::ElementsAre(2, 3, 4) : testing::ElementsAre(1, 2, 3));
  }
}

TEST(RecorderRun, NobodyEndsACollectiveWithoutAMember) {
  struct EndRow {
    const char* what;
    Kind kind;
    bool is_gloo, knows_time, is_partial;
    State state;      // of what rank 0 ended
    bool is_useless;  // the dump of rank 1, which is without entries
  };
  const EndRow rows[] = {
      {"gloo gave up", Kind::all_reduce, true, true, false, State::begun, false},
      {"gloo, at an unknown time", Kind::all_reduce, true, false, false, State::ended, true},
      {"NCCL saw it end", Kind::all_reduce, false, true, false, State::ended, true},
      {"a broadcast ends without its receivers", Kind::broadcast, false, true, false, State::ended, false},
      {"the dump may have lost the entry", Kind::all_reduce, false, true, true, State::ended, false},
  };
  for (const EndRow& row : rows) {
    DumpedRun run(2);
    run.add(0, run.all, 1, State::ended, row.kind, row.is_gloo ? 0 : 1);
    run.trace.ranks[1].last_flush_ns = 100 * kSecond_ns;
    run.trace.ranks[1].is_partial = row.is_partial;
    for (RankTrace& rank : run.trace.ranks) {
      rank.hides_failures = row.is_gloo;
      rank.is_flush_time_known = row.knows_time;
    }
    relate_dumps(run.trace);
    EXPECT_EQ(run.trace.ranks[0].events[0].state, row.state) << row.what;
    EXPECT_EQ(run.trace.ranks[1].is_cut_off, row.is_useless) << row.what;
    EXPECT_EQ(run.trace.ranks[1].is_empty, row.is_useless) << row.what;
    EXPECT_EQ(run.trace.problems.empty(), row.state == State::ended) << row.what;
  }
}

// A status that may count sends and recvs says nothing of the collectives.
TEST(RecorderRun, ForgetsTheStatusOfAGroupWithTransfers) {
  DumpedRun run(2);
  run.trace.ranks[1].is_partial = true;
  run.trace.ranks[1].newest = {{run.all, 9}};
  run.add(0, run.all, 1, State::begun);
  relate_dumps(run.trace);
  EXPECT_EQ(run.trace.ranks[1].newest.size(), 1U);
  run.add(0, run.channel(0, 1), 0, State::begun, Kind::send);
  relate_dumps(run.trace);
  EXPECT_TRUE(run.trace.ranks[1].newest.empty());
}

}  // namespace
}  // namespace ms::tracepp
