// What ranks send each other, and the bits that cores compute: what is wrong is found, to the last word and bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/hash.h"
#include "diag/bits.h"
#include "diag/pattern.h"
#include "diag/share.h"

namespace ms::diag {
namespace {

using ::testing::HasSubstr;

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

TEST(Bits, OfASoundNodeAgree) {
  const Share share = this_share();
  const std::vector<CoreBits> bits = compute_bits(share.cpus, 0.02, plain_hash());
  EXPECT_EQ(bits.size(), share.cpus.size() * 2);
  for (const CoreBits& core : bits) EXPECT_EQ(core.products.size(), 1U) << core.cpu << " " << core.type;
  EXPECT_TRUE(judge_bits(bits).empty());
}

TEST(Bits, OneBitOfOneProductIsNoticed) {
  const Share share = this_share();
  const int bad = share.cpus.back();
  int products = 0;
  const std::vector<CoreBits> bits = compute_bits(share.cpus, 0.05, [&](int cpu, std::span<const std::byte> product) {
    if (cpu != bad || ++products != 3) return xxh64(product);
    std::vector<std::byte> corrupted(product.begin(), product.end());
    corrupted[corrupted.size() / 2] ^= std::byte{4};
    return xxh64(std::span<const std::byte>(corrupted));
  });
  const std::vector<Finding> findings = judge_bits(bits);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::critical);
  EXPECT_EQ(findings[0].entity, "core " + std::to_string(bad));
  EXPECT_THAT(findings[0].message, HasSubstr("1 of "));
}

TEST(Bits, TheMajorityIsRight) {
  const std::vector<CoreBits> bits{{0, "fp32", {{7, 100}}}, {1, "fp32", {{8, 100}}}, {2, "fp32", {{8, 90}, {9, 1}}},
                                   {0, "bf16", {{5, 100}}}, {1, "bf16", {{5, 100}}}, {2, "bf16", {{5, 91}}}};
  const std::vector<Finding> findings = judge_bits(bits);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].entity, "core 0");
  EXPECT_DOUBLE_EQ(findings[0].measured.value(), 100);
  EXPECT_EQ(findings[1].entity, "core 2");
  EXPECT_DOUBLE_EQ(findings[1].measured.value(), 1);
}

TEST(Bits, ACoreThatNeverAgreesWithItselfStaysBounded) {
  const Share share = this_share();
  std::atomic<std::uint64_t> next{1};
  const std::vector<CoreBits> bits =
      compute_bits({share.cpus.front()}, 0.1, [&](int, std::span<const std::byte>) { return next++; });
  for (const CoreBits& core : bits) EXPECT_LE(core.products.size(), 17U);
  EXPECT_FALSE(judge_bits(bits).empty());
}

}  // namespace
}  // namespace ms::diag
