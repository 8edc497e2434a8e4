#include "comm/inquiry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace ms::comm {
namespace {

using namespace std::chrono_literals;

constexpr int kGroup = 7;

Wait wait_for(int peer, std::uint64_t sequence = 1) {
  return {peer, kGroup, sequence, fmt::format("operation {} of group x", sequence)};
}

// Rank 0 has waited 30 s for `peers`. Ranks in `reports` answer with their report; others do not answer.
Error verdict(const std::vector<int>& peers, const std::map<int, WaitReport>& reports, std::size_t* asked = nullptr) {
  Inquiry inquiry(0, 30s, peers, wait_for(-1));
  std::size_t count = 0;
  while (const std::optional<Wait> question = inquiry.next_question()) {
    ++count;
    EXPECT_FALSE(inquiry.all_answered());
    if (const auto found = reports.find(question->peer); found != reports.end())
      inquiry.add_answer(question->peer, question->group, question->sequence, found->second);
  }
  if (asked != nullptr) *asked = count;
  return inquiry.error();
}

TEST(Inquiry, BlamesTheRankThatDoesNotAnswer) {
  const Error direct = verdict({3}, {});
  EXPECT_EQ(direct.message(), "rank 0 waited 30.0 s for rank 3 in operation 1 of group x; rank 3 does not answer");
  EXPECT_EQ(direct.rank(), 3);
  EXPECT_EQ(direct.kind(), "comm.deadline");
  const Error far = verdict({2}, {{2, {.issued = true, .waits = {wait_for(3, 5)}}}});
  EXPECT_EQ(
      far.message(),
      "rank 0 waited 30.0 s for rank 2 in operation 1 of group x; rank 2 waits for rank 3 in operation 5 of group x; "
      "rank 3 does not answer");
  EXPECT_EQ(far.rank(), 3);
  EXPECT_EQ(far.operation(), "operation 5 of group x");
}

TEST(Inquiry, BlamesSilentRanksBeforeBusyOnes) {
  const Error error = verdict({1, 2}, {{1, {.issued = false, .waits = {}}}});
  EXPECT_EQ(error.rank(), 2);
  const Error both = verdict({1, 2}, {});
  EXPECT_FALSE(both.rank());
  EXPECT_EQ(both.message(), "rank 0 waited 30.0 s for ranks 1, 2 in operation 1 of group x; ranks 1, 2 do not answer");
}

TEST(Inquiry, BlamesTheRankThatDoesNotWait) {
  const std::map<int, WaitReport> hangs = {{1, {.issued = true, .waits = {wait_for(2)}}},
                                           {2, {.issued = false, .waits = {}}}};
  EXPECT_EQ(verdict({1}, hangs).rank(), 2);
  EXPECT_TRUE(
      verdict({1}, hangs).message().ends_with("; rank 2 waits for no other rank and had not issued the operation"));
  const std::map<int, WaitReport> computes = {{1, {.issued = true, .waits = {}}}};
  EXPECT_TRUE(verdict({1}, computes)
                  .message()
                  .ends_with("; rank 1 waits for no other rank and had not finished earlier operations"));
}

// Streams run ahead of each other: a hung rank may have receives in progress.
TEST(Inquiry, InACycleBlamesTheRankThatHasNotIssued) {
  const std::map<int, WaitReport> circle = {{1, {.issued = true, .waits = {wait_for(2, 4)}}},
                                            {2, {.issued = false, .waits = {wait_for(1, 9)}}}};
  EXPECT_EQ(verdict({1}, circle).rank(), 2);
  // That may be the asking rank.
  Inquiry inquiry(0, 30s, {1}, wait_for(-1));
  inquiry.next_question();
  inquiry.add_answer(1, kGroup, 1, {.issued = true, .waits = {wait_for(0, 4)}});
  const std::optional<Wait> own = inquiry.next_question();
  ASSERT_TRUE(own);
  EXPECT_EQ(own->peer, 0);
  EXPECT_EQ(own->sequence, 4U);
  inquiry.add_answer(0, kGroup, 4, {.issued = false, .waits = {wait_for(1)}});
  while (const std::optional<Wait> question = inquiry.next_question())
    inquiry.add_answer(question->peer, kGroup, question->sequence, {.issued = true, .waits = {wait_for(0, 4)}});
  EXPECT_TRUE(inquiry.all_answered());
  EXPECT_EQ(inquiry.error().rank(), 0);
}

TEST(Inquiry, BlamesNoRankIfAllHaveIssued) {
  const std::map<int, WaitReport> circle = {{1, {.issued = true, .waits = {wait_for(2, 4)}}},
                                            {2, {.issued = true, .waits = {wait_for(1, 9)}}}};
  const Error error = verdict({1}, circle);
  EXPECT_EQ(error.message(),
            "rank 0 waited 30.0 s for rank 1 in operation 1 of group x; all ranks asked wait for each other");
  EXPECT_FALSE(error.rank());
}

// What ranks know of themselves: whom they wait for, and the operations that they have not issued. Ranks without an
// entry do not answer.
struct KnownRank {
  std::vector<Wait> waits;
  std::vector<std::pair<int, std::uint64_t>> not_issued = {};  // group, sequence
};
struct EvidenceRow {
  const char* name;
  int asks;
  std::vector<int> peers;
  Wait in;
  std::map<int, KnownRank> ranks;
  int accused;  // -1: nobody
  bool is_excused = false;
};
Wait wait_in(int group, std::uint64_t sequence, int peer = -1, bool recent = false) {
  return {peer, group, sequence, fmt::format("operation {} of group {}", sequence, group), recent};
}

// Ranks 1 and 2 exchange in groups 12 (1 to 2) and 21, all others wait for them in group 0.
const std::vector<EvidenceRow>& evidence_rows() {
  static const std::vector<EvidenceRow> kRows = [] {
    const KnownRank waits_for_pair{{wait_in(0, 5, 1), wait_in(0, 5, 2)}};
    // Rank 2 has issued its send, which never begins, and rank 1 its receive: their hosts know the same.
    const KnownRank one{{wait_in(21, 13, 2)}, {{0, 5}}}, two{{wait_in(21, 13, 1)}, {{0, 5}}};
    // The send of rank 1 never begins: rank 2 has not come to its own send, as it waits for it.
    const KnownRank sends{{wait_in(12, 13, 2), wait_in(21, 13, 2)}, {{0, 5}}},
        receives{{wait_in(12, 13, 1)}, {{0, 5}, {21, 13}}};
    const KnownRank slow{{wait_in(12, 3, 2, true)}, {{0, 5}}}, slow_too{{wait_in(12, 3, 1, true)}, {{0, 5}}};
    return std::vector<EvidenceRow>{
        {"a stuck transfer, asked by a third rank",
         0,
         {1, 2},
         wait_in(0, 5),
         {{0, waits_for_pair}, {1, one}, {2, two}},
         -1},
        {"of which one end answers alone", 0, {1, 2}, wait_in(0, 5), {{0, waits_for_pair}, {1, one}}, 2},
        {"asked by one end", 1, {2}, wait_in(21, 13), {{1, one}, {2, two}}, -1},
        {"asked by the other end", 2, {1}, wait_in(21, 13), {{1, one}, {2, two}}, -1},
        {"a stuck send, asked by its sender", 1, {2}, wait_in(21, 13), {{1, sends}, {2, receives}}, -1},
        {"asked by its receiver", 2, {1}, wait_in(12, 13), {{1, sends}, {2, receives}}, -1},
        {"asked by a third rank", 0, {1, 2}, wait_in(0, 5), {{0, waits_for_pair}, {1, sends}, {2, receives}}, -1},
        {"a third rank waits for the pair through a fourth",
         0,
         {3},
         wait_in(30, 1),
         {{0, {{wait_in(30, 1, 3)}}}, {1, one}, {2, two}, {3, {{wait_in(0, 5, 1), wait_in(0, 5, 2)}, {{30, 1}}}}},
         -1},
        {"a host that hangs", 1, {2}, wait_in(21, 13), {{1, one}, {2, {{}, {{21, 13}}}}}, 2},
        {"a host that hangs in a collective: those who wait in it are no stuck transfer",
         0,
         {1, 2},
         wait_in(7, 4),
         {{0, {{wait_in(7, 4, 1), wait_in(7, 4, 2)}}},
          {1, {{wait_in(7, 4, 0), wait_in(7, 4, 2)}}},
          {2, {{wait_in(9, 1, 1)}, {{7, 4}}}}},
         2},
        {"all are in the collective: nothing tells them apart",
         0,
         {1, 2},
         wait_in(7, 4),
         {{0, {{wait_in(7, 4, 1), wait_in(7, 4, 2)}}},
          {1, {{wait_in(7, 4, 0), wait_in(7, 4, 2)}}},
          {2, {{wait_in(7, 4, 0), wait_in(7, 4, 1)}}}},
         -1},
        {"they disagree about the order",
         1,
         {2},
         wait_in(21, 1),
         {{1, {{wait_in(21, 1, 2)}, {{12, 1}}}}, {2, {{wait_in(12, 1, 1)}, {{21, 1}}}}},
         -1},
        {"a busy machine: both made progress lately",
         0,
         {1, 2},
         wait_in(0, 5),
         {{0, waits_for_pair}, {1, slow}, {2, slow_too}},
         -1,
         true},
        {"one came late, and its peer computes", 0, {1}, wait_in(0, 5), {{1, slow}, {2, {{}, {{12, 3}}}}}, -1, true},
        {"one came late, and its peer is stopped", 0, {1}, wait_in(0, 5), {{1, slow}}, 2},
        {"one came late, and another hangs for all",
         0,
         {1, 2},
         wait_in(0, 5),
         {{0, waits_for_pair}, {1, slow}, {2, {{}, {{0, 5}, {12, 3}}}}},
         2,
         true}};
  }();
  return kRows;
}

TEST(Inquiry, AccusesOnlyOnEvidenceOfTheRankItself) {
  for (const EvidenceRow& row : evidence_rows()) {
    Inquiry inquiry(row.asks, 30s, row.peers, row.in);
    while (const std::optional<Wait> question = inquiry.next_question()) {
      const auto known = row.ranks.find(question->peer);
      if (known == row.ranks.end()) continue;
      const std::pair operation(question->group, question->sequence);
      const bool issued = std::ranges::find(known->second.not_issued, operation) == known->second.not_issued.end();
      inquiry.add_answer(question->peer, question->group, question->sequence, {issued, known->second.waits});
    }
    const Error error = inquiry.error();
    EXPECT_EQ(error.rank().value_or(-1), row.accused) << row.name << ": " << error.message();
    EXPECT_EQ(inquiry.is_excused(), row.is_excused) << row.name;
  }
}

TEST(Inquiry, NamesTheOperationThatIsStuckAndItsRanks) {
  Inquiry inquiry(0, 30s, {1}, wait_for(-1));
  inquiry.next_question();
  inquiry.add_answer(1, kGroup, 1, {.issued = false, .waits = {wait_for(2, 4)}});
  inquiry.next_question();
  inquiry.add_answer(2, kGroup, 4, {.issued = true, .waits = {wait_for(1, 4)}});
  inquiry.next_question();
  inquiry.add_answer(1, kGroup, 4, {.issued = true, .waits = {}});
  EXPECT_EQ(inquiry.error().operation(), "operation 4 of group x");
  EXPECT_TRUE(inquiry.error().message().ends_with(
      "; ranks 1, 2 wait for each other in operation 4 of group x: which of them is at fault cannot be told"))
      << inquiry.error().message();
}

TEST(Inquiry, AsksABoundedNumberOfQuestions) {
  std::map<int, WaitReport> reports;
  std::vector<int> all;
  for (int rank = 1; rank < 2000; ++rank) {
    all.push_back(rank);
    for (int k = 1; k < 100; ++k) reports[rank].waits.push_back(wait_for((rank * 31 + k) % 2000));
  }
  std::size_t asked = 0;
  verdict(all, reports, &asked);
  EXPECT_EQ(asked, Inquiry::kMostQuestions);
  const Error chain = verdict({1}, [] {
    std::map<int, WaitReport> ring;
    for (int rank = 1; rank < 20; ++rank) ring[rank] = {.issued = true, .waits = {wait_for(rank + 1)}};
    return ring;
  }());
  EXPECT_EQ(chain.rank(), 20);
  EXPECT_LT(chain.message().size(), 400U);
}

// A rank may answer once and die before the next question.
TEST(Inquiry, EndsWithoutSomeAnswers) {
  Inquiry inquiry(0, 30s, {1, 2}, wait_for(-1));
  inquiry.next_question();
  inquiry.next_question();
  inquiry.add_answer(1, kGroup, 1, {.issued = true, .waits = {wait_for(2, 4)}});
  inquiry.add_answer(2, kGroup, 1, {.issued = true, .waits = {wait_for(1, 4)}});
  while (inquiry.next_question()) {}
  EXPECT_FALSE(inquiry.all_answered());
  EXPECT_FALSE(inquiry.error().rank());
}

TEST(Inquiry, IgnoresUnrequestedAnswers) {
  Inquiry inquiry(0, 30s, {1}, wait_for(-1));
  inquiry.add_answer(1, kGroup, 1, {});  // not asked yet
  inquiry.next_question();
  inquiry.add_answer(2, kGroup, 1, {});
  inquiry.add_answer(1, kGroup, 2, {});
  inquiry.add_answer(1, kGroup + 1, 1, {});
  EXPECT_FALSE(inquiry.all_answered());
  inquiry.add_answer(1, kGroup, 1, {});
  EXPECT_TRUE(inquiry.all_answered());
}

TEST(Inquiry, KeepsTheOldestWaitOfEachPeerInEachGroup) {
  const std::chrono::steady_clock::time_point start{};
  std::vector<AgedWait> waits = {
      {start + 3s, wait_for(1, 3)}, {start + 1s, wait_for(2, 1)}, {start + 2s, wait_for(1, 2)}};
  const std::vector<Wait> kept = oldest(waits);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].peer, 2);
  EXPECT_EQ(kept[1].sequence, 2U);
  waits.push_back({start + 4s, wait_in(kGroup + 1, 0, 1)});
  EXPECT_EQ(oldest(waits).size(), 3U) << "the same peer in another group";
  for (int peer = 10; peer < 50; ++peer) waits.push_back({start, wait_for(peer)});
  EXPECT_EQ(oldest(waits).size(), Inquiry::kMostWaits);
}

}  // namespace
}  // namespace ms::comm
