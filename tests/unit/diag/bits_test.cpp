// The bits that cores compute: what is wrong is found, to the last bit.
#include "diag/bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "diag/share.h"

namespace ms::diag {
namespace {

using ::testing::HasSubstr;

TEST(Bits, OfASoundNodeAgree) {
  const Share share = this_share();
  const std::vector<CoreBits> bits = compute_bits(share.cpus, 0.02, plain_hash());
  EXPECT_EQ(bits.size(), share.cpus.size() * 2);
  for (const CoreBits& core : bits) EXPECT_EQ(core.gemms.size(), 1U) << core.cpu << " " << core.type;
  EXPECT_TRUE(judge_bits(bits).empty());
}

TEST(Bits, OneBitOfOneProductIsNoticed) {
  const Share share = this_share();
  const int bad = share.cpus.back();
  int gemms = 0;
  const std::vector<CoreBits> bits = compute_bits(share.cpus, 0.05, [&](int cpu, std::span<const std::byte> product) {
    if (cpu != bad || ++gemms != 3) return xxh64(product);
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
  for (const CoreBits& core : bits) EXPECT_LE(core.gemms.size(), 17U);
  EXPECT_FALSE(judge_bits(bits).empty());
}

}  // namespace
}  // namespace ms::diag
