// What ranks send each other: what is wrong is found, to the last word.
#include "net/measure/pattern.h"

#include <gtest/gtest.h>

#include <set>

namespace ms::net {
namespace {

std::vector<float> sum_of(int ranks, std::size_t size) {
  std::vector<float> total(size), summand(size);
  for (int rank = 0; rank < ranks; ++rank) {
    fill_summand(summand, rank);
    for (std::size_t i = 0; i < size; ++i) total[i] += summand[i];
  }
  return total;
}

TEST(Sums, AreKnownExactly) {
  for (const int ranks : {1, 2, 3, 8, 1000}) {
    std::vector<float> total = sum_of(ranks, 1000);
    EXPECT_EQ(count_wrong_sums(total, ranks), 0U) << ranks;
    EXPECT_GT(count_wrong_sums(total, ranks + 1), 900U) << ranks;
    total[999] += 1;
    EXPECT_EQ(count_wrong_sums(total, ranks), 1U) << ranks;
  }
}

TEST(Sums, OfTheWrongRanksAreNoticed) {
  std::vector<float> total(100), summand(100);
  for (const int rank : {0, 1, 1}) {  // the second came twice, the third not at all
    fill_summand(summand, rank);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += summand[i];
  }
  EXPECT_GT(count_wrong_sums(total, 3), 90U);
}

TEST(Blocks, AreThoseOfTheirWayAndRound) {
  std::vector<std::uint32_t> block(1000);
  fill_block(block, 1, 2, 3);
  EXPECT_EQ(count_wrong_words(block, 1, 2, 3), 0U);
  EXPECT_EQ(count_wrong_words(block, 2, 1, 3), 1000U);
  EXPECT_EQ(count_wrong_words(block, 1, 2, 2), 1000U);
  block[500] ^= 1U << 30;
  EXPECT_EQ(count_wrong_words(block, 1, 2, 3), 1U);
}

TEST(Tournament, EverybodyMeetsEverybodyOnce) {
  for (const int ranks : {2, 4, 6, 16}) {
    for (int rank = 0; rank < ranks; ++rank) {
      std::set<int> met;
      for (int round = 0; round < ranks - 1; ++round) {
        const int partner = partner_of(rank, round, ranks);
        ASSERT_TRUE(partner >= 0 && partner < ranks && partner != rank) << ranks << " " << rank << " " << round;
        EXPECT_EQ(partner_of(partner, round, ranks), rank);
        met.insert(partner);
      }
      EXPECT_EQ(met.size(), static_cast<std::size_t>(ranks - 1));
    }
  }
}

}  // namespace
}  // namespace ms::net
