// Whom ms-tracepp hang names if the run itself asked around before it gave up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "few_events.h"
#include "tracepp/hang/hang.h"

namespace ms::tracepp {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Four ranks that all wait in the same operation. One gave up and stopped the others: with what it found of `mute`,
// which wrote long after them.
struct AskedInVain : FewRanks {
  AskedInVain(int mute, std::string_view found) : FewRanks(4) {
    for (int rank = 0; rank < 4; ++rank) {
      add(rank, State::ended, 1, 0.01, 0);
      add(rank, State::begun, 2, 0, 1);
      RankTrace& file = trace.ranks[static_cast<std::size_t>(rank)];
      file.ending = rank == 0 ? Ending::timed_out : Ending::stopped;
      file.ending_text = "rank 0 waited 5.0 s for rank 2 in all_reduce; rank 2 waits for rank 3 in all_reduce; ";
      file.ending_text += found;
      file.last_flush_ns = (rank == mute ? 30 : 8) * std::int64_t{1'000'000'000};
    }
  }
};

// A stopped process writes again once it is continued. Its trace then looks like those of ranks that wait.
TEST(HangInquiry, ARankThatDidNotAnswerComesBeforeWhatIsInferred) {
  AskedInVain pair(3, "rank 3 does not answer");
  Hang hang = find_hang(pair.trace);
  EXPECT_EQ(hang.state, RunState::hang);
  ASSERT_EQ(hang.suspects.size(), 1U) << hang_text(hang, pair.trace);
  EXPECT_EQ(hang.suspects[0].rank, 3);
  EXPECT_EQ(hang.suspects[0].reason, Reason::silent);
  EXPECT_GT(hang.suspects[0].confidence, 0.9);
  EXPECT_THAT(hang.sentence, StartsWith("rank 3 did not answer when other ranks asked what it waits for"));
  EXPECT_THAT(hang.sentence, HasSubstr("it continued later"));
  // In a section for long, as the traces have it: but the process was stalled in it.
  pair.add(2, State::begun, 2, 0, kNoDetail, Kind::forward);
  hang = find_hang(pair.trace);
  EXPECT_EQ(hang.suspects.front().rank, 3);
  // Continued, it finds in turn that those that are gone do not answer.
  pair.trace.ranks[3].ending = Ending::timed_out;
  pair.trace.ranks[3].ending_text = "rank 3 waited 28.0 s for rank 0 in all_reduce; rank 0 does not answer";
  for (const std::size_t gone : {1U, 2U}) pair.trace.ranks[gone].ending = Ending::running;
  hang = find_hang(pair.trace);
  ASSERT_FALSE(hang.suspects.empty());
  EXPECT_THAT(hang_text(hang, pair.trace), HasSubstr("rank 3 did not answer"));
}

TEST(HangInquiry, SeveralRanksMayNotAnswer) {
  const AskedInVain pair(3, "ranks 1, 3 do not answer");
  const Hang hang = find_hang(pair.trace);
  ASSERT_EQ(hang.suspects.size(), 2U) << hang_text(hang, pair.trace);
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_EQ(hang.suspects[i].rank, i == 0 ? 1 : 3);
    EXPECT_EQ(hang.suspects[i].reason, Reason::silent);
  }
}

TEST(HangInquiry, OnlyAnInquiryWithoutAnAnswerIsHeeded) {
  for (const char* const found :
       {"rank 3 waits for no other rank and had not issued the operation", "all ranks asked wait for each other",
        "rank  does not answer", "rank x9 does not answer", "rank 99999999999 does not answer", ""}) {
    const AskedInVain pair(3, found);
    const Hang hang = find_hang(pair.trace);
    EXPECT_THAT(hang.sentence, Not(HasSubstr("did not answer"))) << found;
  }
}

// A call that does not match is a fault by itself: both are said.
TEST(HangInquiry, WhatTheTracesShowStandsBesideAnInquiry) {
  AskedInVain pair(3, "rank 3 does not answer");
  pair.trace.ranks[1].events.pop_back();
  pair.add(1, State::begun, 2, 0, 1, Kind::all_gather);
  const Hang hang = find_hang(pair.trace);
  EXPECT_EQ(hang.suspects.front().rank, 1) << hang_text(hang, pair.trace);
  EXPECT_EQ(hang.suspects.front().reason, Reason::wrong_kind);
  EXPECT_THAT(hang.sentence, HasSubstr("besides, rank 3 did not answer"));
}

}  // namespace
}  // namespace ms::tracepp
