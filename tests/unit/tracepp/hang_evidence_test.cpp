// What counts as a hang, who is named and how operations match, on traces of a few events; and as flight recorders show
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "few_events.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(HangEvidence, BlamesNoRankForATransferThatDoesNotEnd) {
  FewRanks pair(3);
  for (int rank = 0; rank < 3; ++rank) {
    pair.add(rank, State::ended, 1, 0.01, 0);
    pair.add(rank, State::begun, 2, 0, 1);
  }
  pair.flush(300);
  const Hang hang = find_hang(pair.trace);
  ASSERT_EQ(hang.suspects.size(), 3U);
  EXPECT_EQ(hang.suspects[0].reason, Reason::transfer);
  EXPECT_LT(hang.suspects[0].confidence, 0.3);
  EXPECT_EQ(hang.ops[0].match, Match::fully_matched);
  EXPECT_THAT(hang.sentence, HasSubstr("all 3 members are in all_reduce 1 of group dp[pp 0 tp 0] for 298 s"));
}

TEST(HangEvidence, DeadlinesFollowThePastDurations) {
  struct Case {
    double usual_s, waited_s;
    bool hangs;
  };
  for (const Case& it : {Case{0.01, 4, false}, Case{0.01, 6, true}, Case{2, 18, false}, Case{2, 21, true}}) {
    FewRanks pair;
    for (std::uint32_t i = 0; i < 10; ++i)
      for (int rank = 0; rank < 2; ++rank) pair.add(rank, State::ended, i * 3.0, it.usual_s, i);
    pair.add(0, State::begun, 40, 0, 10);
    pair.flush(40 + it.waited_s);
    EXPECT_EQ(find_hang(pair.trace).state, it.hangs ? RunState::hang : RunState::cut_off)
        << it.usual_s << " " << it.waited_s;
  }
  for (const auto& [waited_s, hangs] : {std::pair(25.0, false), std::pair(35.0, true)}) {  // the first of its kind
    FewRanks pair;
    pair.add(0, State::begun, 1, 0, 0);
    pair.flush(1 + waited_s);
    EXPECT_EQ(find_hang(pair.trace).state, hangs ? RunState::hang : RunState::cut_off) << waited_s;
  }
}

TEST(HangEvidence, AllowsALongCheckpoint) {
  for (const auto& [saved_s, hangs] : {std::pair(100.0, false), std::pair(700.0, true)}) {
    FewRanks pair;
    for (int rank = 0; rank < 2; ++rank) pair.add(rank, State::ended, 1, 0.01, 0);
    pair.add(0, State::begun, 2, 0, 1);
    pair.add(1, State::begun, 2, 0, kNoDetail, Kind::save);
    pair.flush(2 + saved_s);
    const Hang hang = find_hang(pair.trace);
    EXPECT_EQ(hang.state, hangs ? RunState::hang : RunState::cut_off) << hang.sentence;
    EXPECT_THAT(hang.sentence, HasSubstr("rank 1 is held up by a checkpoint"));
  }
}

TEST(HangEvidence, NamesTheRankThatFailedFirst) {
  FewRanks pair(4);
  for (int rank = 0; rank < 4; ++rank) {
    pair.add(rank, State::ended, 1, 0.01, 0);
    if (rank != 2) pair.add(rank, State::begun, 2, 0, 1);
    pair.trace.ranks[static_cast<std::size_t>(rank)].ending = Ending::failed;
    pair.trace.ranks[static_cast<std::size_t>(rank)].ending_text = rank == 2 ? "no space left" : "peer lost";
  }
  pair.flush(2.1);
  Hang hang = find_hang(pair.trace);
  EXPECT_EQ(hang.state, RunState::failed);
  EXPECT_EQ(hang.suspects.front().rank, 2);
  EXPECT_THAT(hang.sentence, HasSubstr("rank 2 failed: \"no space left\""));
  // Whoever was killed says nothing, the others fail for it.
  pair.trace.ranks[1].ending = Ending::running;
  hang = find_hang(pair.trace);
  EXPECT_EQ(hang.suspects.front().rank, 1);
  EXPECT_THAT(hang.sentence, HasSubstr("rank 1 ended without a word"));
}

TEST(HangEvidence, ARankThatGivesUpAfterALongWaitIsAWaiter) {
  FewRanks pair(3);
  for (int rank = 0; rank < 3; ++rank) {
    pair.add(rank, State::ended, 1, 0.01, 0);
    if (rank < 2) pair.add(rank, State::begun, 2, 0, 1);
    if (rank < 2) pair.trace.ranks[static_cast<std::size_t>(rank)].ending = Ending::failed;
  }
  pair.flush(602);
  const Hang hang = find_hang(pair.trace);
  EXPECT_EQ(hang.state, RunState::hang);
  EXPECT_EQ(hang.suspects.front().rank, 2);
  EXPECT_EQ(hang.suspects.front().reason, Reason::not_issuing);
  EXPECT_EQ(hang.sentence, "rank 2 never issued all_reduce 1 of group dp[pp 0 tp 0]; 2 members wait for it for 600 s");
}

// A deadline shorter than what would count as a hang by itself: whoever gave up, or was told to, only waited.
TEST(HangEvidence, ARankThatGivesUpAtItsDeadlineIsAWaiter) {
  FewRanks pair(4);
  for (int rank = 0; rank < 4; ++rank) {
    pair.add(rank, State::ended, 1, 0.01, 0);
    if (rank != 2) pair.add(rank, State::begun, 2, 0, 1);
    RankTrace& trace = pair.trace.ranks[static_cast<std::size_t>(rank)];
    trace.ending = rank == 1 ? Ending::timed_out : Ending::stopped;
    trace.ending_text = rank == 1 ? "rank 1 waited 1.0 s for rank 2" : "rank 1 stopped: rank 1 waited 1.0 s for rank 2";
  }
  pair.flush(3);
  const Hang hang = find_hang(pair.trace);
  EXPECT_EQ(hang.state, RunState::hang);
  ASSERT_FALSE(hang.suspects.empty());
  EXPECT_EQ(hang.suspects.front().rank, 2);
  EXPECT_EQ(hang.suspects.front().reason, Reason::not_issuing);
  EXPECT_EQ(hang.evidence.front(), "rank 1 gave up: \"rank 1 waited 1.0 s for rank 2\"");
}

// Those that were stopped by a death are witnesses, never suspects.
TEST(HangEvidence, ARankStoppedByADeathIsAWitness) {
  for (const int killed : {1, 2}) {
    FewRanks pair(4);
    for (int rank = 0; rank < 4; ++rank) {
      pair.add(rank, State::ended, 1, 0.01, 0);
      if (rank < 4 - killed) pair.trace.ranks[static_cast<std::size_t>(rank)].ending = Ending::stopped;
    }
    pair.flush(2.1);
    const Hang hang = find_hang(pair.trace);
    EXPECT_EQ(hang.state, RunState::failed);
    ASSERT_EQ(hang.suspects.size(), static_cast<std::size_t>(killed));
    EXPECT_EQ(hang.suspects.front().rank, 4 - killed);
    EXPECT_EQ(hang.suspects.front().reason, Reason::silent);
    EXPECT_THAT(hang.sentence, HasSubstr("ended without a word, while others were stopped"));
  }
}

// The section of the gradients' norm waits inside for their sums: it computes nothing meanwhile.
TEST(HangEvidence, TheSectionOfTheNormWaitsForGradients) {
  FewRanks pair;
  for (int rank = 0; rank < 2; ++rank) pair.add(rank, State::ended, 1, 0.01, 0);
  pair.add(0, State::begun, 2, 0, kNoDetail, Kind::other_compute);
  pair.add(0, State::begun, 2, 0, 1);
  pair.trace.infos[pair.trace.ranks[0].events[1].info].purpose = Purpose::clip;
  Event& sums = pair.trace.ranks[0].events[2];
  pair.trace.infos.push_back(pair.trace.info(sums));
  sums.info = static_cast<std::uint32_t>(pair.trace.infos.size() - 1);
  pair.trace.infos.back().purpose = Purpose::embedding;
  pair.flush(100);
  const Hang hang = find_hang(pair.trace);
  ASSERT_FALSE(hang.suspects.empty());
  EXPECT_EQ(hang.suspects.front().rank, 1) << hang_text(hang, pair.trace);
  EXPECT_EQ(hang.suspects.front().reason, Reason::not_issuing);
}

// mpirun kills survivors before they can say anything.
TEST(HangEvidence, PrefersTheSilentRankThatOthersWaitFor) {
  FewRanks pair(4);
  for (int rank = 0; rank < 4; ++rank) {
    pair.add(rank, State::ended, 1, 0.01, 0);
    RankTrace& trace = pair.trace.ranks[static_cast<std::size_t>(rank)];
    trace.host = "n1";
    if (rank % 2 != 0) continue;
    trace.ending = Ending::stopped;
    trace.ending_rank = 3;
  }
  pair.flush(2.1);
  const Hang hang = find_hang(pair.trace);
  ASSERT_EQ(hang.suspects.size(), 2U);
  EXPECT_EQ(hang.suspects.front().rank, 3);
  EXPECT_LT(hang.suspects.back().confidence, 0.5);
  EXPECT_THAT(hang.sentence, HasSubstr("rank 3"));
  EXPECT_THAT(hang.sentence, HasSubstr("the same holds for 1 further rank of node n1"));
}

TEST(HangEvidence, ARunWithoutAnEndingIsKilled) {
  FewRanks pair;
  pair.trace.source = &kOwnSource;
  for (int rank = 0; rank < 2; ++rank) {
    pair.add(rank, State::ended, 1, 0.01, 0);
    pair.trace.ranks[static_cast<std::size_t>(rank)].realtime_ns = 1'800'000'000'000'000'000;
  }
  pair.flush(2.1);
  EXPECT_EQ(find_hang(pair.trace).state, RunState::cut_off);
  Hang hang = find_hang(pair.trace, 1.8e9 + 5);
  EXPECT_EQ(hang.state, RunState::cut_off);
  EXPECT_TRUE(hang.is_alive);
  hang = find_hang(pair.trace, 1.8e9 + 60);
  EXPECT_EQ(hang.state, RunState::killed);
  EXPECT_FALSE(hang.is_alive);
  EXPECT_THAT(hang.sentence, HasSubstr("stop at 2027-01-15 08:00:02 UTC"));
  for (RankTrace& rank : pair.trace.ranks) rank.ending = Ending::done;
  EXPECT_EQ(find_hang(pair.trace, 1.8e9 + 60).state, RunState::ended);
}

TEST(HangEvidence, ReportsTheWaitNearestToItsDeadline) {
  FewRanks pair;
  for (int rank = 0; rank < 2; ++rank) pair.add(rank, State::ended, 1, 0.01, 0);
  pair.add(0, State::begun, 2, 0, 1);
  pair.flush(5);
  const Hang hang = find_hang(pair.trace);
  EXPECT_EQ(hang.state, RunState::cut_off);
  EXPECT_THAT(hang.sentence, HasSubstr("; rank 0 has been in all_reduce"));
  EXPECT_THAT(hang.sentence, StartsWith("no hang yet: "));
}

TEST(HangEvidence, BlamesARankThatFailedOrLeftWhileOthersWait) {
  for (const auto& [ending, reason] :
       {std::pair(Ending::failed, Reason::failed), std::pair(Ending::done, Reason::left)}) {
    FewRanks pair;
    for (int rank = 0; rank < 2; ++rank) pair.add(rank, State::ended, 1, 0.01, 0);
    pair.add(0, State::begun, 2, 0, 1);
    pair.flush(100);
    pair.trace.ranks[1].ending = ending;
    pair.trace.ranks[1].ending_text = "bad\x1b[31m\ntext {}";
    const Hang hang = find_hang(pair.trace);
    EXPECT_EQ(hang.state, RunState::hang);
    EXPECT_EQ(hang.suspects.front().rank, 1);
    EXPECT_EQ(hang.suspects.front().reason, reason);
    EXPECT_THAT(hang.sentence, Not(HasSubstr("\x1b")));
  }
}

// As the reader of flight recorder dumps makes them: no sections, no mesh, no word about what ranks do now.
struct Dumps : FewRanks {
  explicit Dumps(int ranks) : FewRanks(ranks) {
    trace.source = &kFlightRecorder;
    for (RankTrace& rank : trace.ranks) {
      rank.ending = Ending::unknown;
      rank.is_flush_time_known = false;
    }
    other = tables.group({.name = "default_pg", .ranks = trace.groups[0].ranks, .axis = GroupAxis::other});
  }
  void call(int rank, std::int32_t in, std::uint32_t sequence, bool ended, Kind kind = Kind::all_reduce,
            std::int64_t size_bytes = 64) {
    group = in;
    RankTrace& it = trace.ranks[static_cast<std::size_t>(rank)];
    const double at_s = 1700000000 + static_cast<double>(it.events.size());
    add(rank, ended ? State::ended : State::begun, at_s, ended ? 0.01 : 0, sequence, kind, size_bytes);
  }
  std::int32_t other = 0;
};

TEST(HangEvidence, FlightRecorderDumps) {
  {
    Dumps dumps(4);
    for (int rank = 0; rank < 4; ++rank) {
      dumps.call(rank, 0, 0, true);
      if (rank != 3) dumps.call(rank, 0, 1, false);
    }
    const Hang hang = find_hang(dumps.trace);
    EXPECT_EQ(hang.state, RunState::hang);
    EXPECT_EQ(hang.suspects.front().rank, 3) << hang_text(hang, dumps.trace);
    EXPECT_EQ(hang.ops[0].missing, std::vector{3});
    EXPECT_THAT(hang.sentence, HasSubstr("rank 3 never issued all_reduce 1"));
  }
  {
    Dumps dumps(4);
    for (int rank = 0; rank < 4; ++rank) {
      dumps.call(rank, 0, 0, true);
      dumps.call(rank, 0, 1, false, rank == 2 ? Kind::all_gather : Kind::all_reduce);
    }
    const Hang hang = find_hang(dumps.trace);
    EXPECT_EQ(hang.suspects.front().rank, 2);
    EXPECT_EQ(hang.suspects.front().reason, Reason::wrong_kind);
    EXPECT_EQ(hang.ops[0].match, Match::type_mismatch);
  }
  {
    Dumps dumps(3);  // the last one takes the two groups in another order
    for (int rank = 0; rank < 3; ++rank) {
      dumps.call(rank, 0, 0, true);
      dumps.call(rank, rank == 2 ? dumps.other : 0, rank == 2 ? 0 : 1, false);
    }
    const Hang hang = find_hang(dumps.trace);
    EXPECT_THAT(hang.suspects.front().rank, 2) << hang_text(hang, dumps.trace);
    EXPECT_THAT(hang.sentence, testing::AllOf(HasSubstr("default_pg"), HasSubstr("dp[pp 0 tp 0]")));
  }
  {
    Dumps dumps(3);
    for (int rank = 0; rank < 3; ++rank) dumps.call(rank, 0, 0, true);
    EXPECT_EQ(find_hang(dumps.trace).state, RunState::cut_off);
  }
}

TEST(HangEvidence, DistinguishesTheSixMatchStates) {
  struct Case {
    State state;
    Kind kind;
    std::int64_t size_bytes;
    const char* type;
    Match match;
  };
  for (const Case& it : {Case{State::begun, Kind::all_reduce, 64, "f32", Match::fully_matched},
                         Case{State::issued, Kind::all_reduce, 64, "f32", Match::state_mismatch},
                         Case{State::begun, Kind::broadcast, 64, "f32", Match::type_mismatch},
                         Case{State::begun, Kind::all_reduce, 65, "f32", Match::size_mismatch},
                         Case{State::begun, Kind::all_reduce, 64, "bf16", Match::dtype_mismatch},
                         Case{State::begun, Kind::all_reduce, -1, "f32", Match::fully_matched}}) {
    FewRanks pair;
    pair.add(0, State::begun, 2, 0, 0);
    pair.add(1, it.state, 2, 0, 0, it.kind, it.size_bytes);
    pair.trace.infos[pair.trace.ranks[0].events[0].info].type = pair.trace.strings.id("f32");
    Event& theirs = pair.trace.ranks[1].events[0];
    pair.trace.infos.push_back(pair.trace.info(theirs));
    theirs.info = static_cast<std::uint32_t>(pair.trace.infos.size() - 1);
    pair.trace.infos.back().type = pair.trace.strings.id(it.type);
    pair.flush(100);
    const Hang hang = find_hang(pair.trace);
    ASSERT_FALSE(hang.ops.empty());
    EXPECT_EQ(hang.ops[0].match, it.match) << to_string(hang.ops[0].match);
  }
  FewRanks alone;
  alone.add(0, State::begun, 2, 0, 0);
  alone.flush(100);
  EXPECT_EQ(find_hang(alone.trace).ops[0].match, Match::undecided);
}

TEST(HangEvidence, HandlesASingleRank) {
  FewRanks pair(1);
  pair.add(0, State::ended, 1, 0.1, kNoDetail, Kind::forward);
  pair.add(0, State::begun, 2, 0, kNoDetail, Kind::forward);
  pair.flush(100);
  const Hang hang = find_hang(pair.trace);
  EXPECT_EQ(hang.state, RunState::hang);
  EXPECT_EQ(hang.sentence, "rank 0 is in forward for 98 s");
}

TEST(HangEvidence, HandlesAnEmptyTrace) {
  const RunTrace trace;
  const Hang hang = find_hang(trace);
  EXPECT_EQ(hang.state, RunState::cut_off);
  EXPECT_FALSE(hang_text(hang, trace).empty());
  EXPECT_EQ(nlohmann::json::parse(hang_json(hang, trace))["state"], "cut_off");
}

}  // namespace
}  // namespace ms::tracepp
