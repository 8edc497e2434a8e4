// The bits that cores compute: what is wrong is found, to the last bit.
#include "diag/bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "base/hash.h"
#include "diag/share.h"

namespace ms::diag {
namespace {

using ::testing::HasSubstr;

TEST(Bits, OfASoundNodeAgree) {
  const Share share = this_share();
  const std::vector<UnitBits> bits = compute_bits(share.cpus, 0.02, plain_hash());
  EXPECT_EQ(bits.size(), share.cpus.size() * 2);
  for (const UnitBits& core : bits) EXPECT_EQ(core.gemms.size(), 1U) << core.unit << " " << core.type;
  EXPECT_TRUE(judge_bits(bits).empty());
}

TEST(Bits, OneBitOfOneProductIsNoticed) {
  const Share share = this_share();
  const std::string bad = "core " + std::to_string(share.cpus.back());
  int gemms = 0;
  const std::vector<UnitBits> bits =
      compute_bits(share.cpus, 0.05, [&](const std::string& core, std::span<const std::byte> product) {
        if (core != bad || ++gemms != 3) return xxh64(product);
        std::vector<std::byte> corrupted(product.begin(), product.end());
        corrupted[corrupted.size() / 2] ^= std::byte{4};
        return xxh64(std::span<const std::byte>(corrupted));
      });
  const std::vector<Finding> findings = judge_bits(bits);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::critical);
  EXPECT_EQ(findings[0].entity, bad);
  EXPECT_THAT(findings[0].message, HasSubstr("1 of "));
}

UnitBits unit(int core, const std::string& type, const std::map<std::uint64_t, std::size_t>& gemms) {
  UnitBits bits("core " + std::to_string(core), type);
  bits.gemms = gemms;
  return bits;
}

TEST(Bits, TheMajorityIsRight) {
  const std::vector<UnitBits> bits{unit(0, "fp32", {{7, 100}}),        unit(1, "fp32", {{8, 100}}),
                                   unit(2, "fp32", {{8, 90}, {9, 1}}), unit(0, "bf16", {{5, 100}}),
                                   unit(1, "bf16", {{5, 100}}),        unit(2, "bf16", {{5, 91}})};
  const std::vector<Finding> findings = judge_bits(bits);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].entity, "core 0");
  EXPECT_DOUBLE_EQ(findings[0].measured.value(), 100);
  EXPECT_EQ(findings[1].entity, "core 2");
  EXPECT_DOUBLE_EQ(findings[1].measured.value(), 1);
}

TEST(Bits, WithoutAMajorityNobodyIsAccusedAlone) {
  const std::vector<Finding> findings = judge_bits({unit(0, "fp32", {{7, 100}}), unit(1, "fp32", {{8, 100}})});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].entity, "core 0, core 1");
  EXPECT_THAT(findings[0].message, HasSubstr("it is not known who is wrong"));
}

// Silent corruption: one bit of one of ten thousand GEMMs.
TEST(Bits, OneBitInTenThousandGemmsIsNamed) {
  constexpr std::size_t kGemms = 10'000;
  const Share share = this_share();
  const int cpu = share.cpus.front();
  const std::string core = "core " + std::to_string(cpu);
  std::atomic<std::size_t> gemms{0};
  std::vector<UnitBits> all;
  while (gemms < kGemms) {
    const std::vector<UnitBits> more = compute_bits(
        {cpu}, 0.2,
        [&](const std::string&, std::span<const std::byte> product) {
          if (++gemms != kGemms / 2) return xxh64(product);
          std::vector<std::byte> corrupted(product.begin(), product.end());
          corrupted[17] ^= std::byte{1};
          return xxh64(std::span<const std::byte>(corrupted));
        },
        32);
    all.insert(all.end(), more.begin(), more.end());
  }
  const std::vector<Finding> findings = judge_bits(all);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].entity, core);
  EXPECT_EQ(findings[0].measured.value(), 1);
  EXPECT_THAT(findings[0].message, HasSubstr("1 of "));
}

TEST(Bits, ACoreThatNeverAgreesWithItselfStaysBounded) {
  const Share share = this_share();
  std::atomic<std::uint64_t> next{1};
  const std::vector<UnitBits> bits =
      compute_bits({share.cpus.front()}, 0.1, [&](const std::string&, std::span<const std::byte>) { return next++; });
  for (const UnitBits& core : bits) EXPECT_LE(core.gemms.size(), 17U);
  EXPECT_FALSE(judge_bits(bits).empty());
}

}  // namespace
}  // namespace ms::diag
