#include "clos/hash.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace ms::clos {
namespace {

std::vector<std::uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

TEST(EcmpHash, CrcsHaveTheirCheckValues) {
  const std::vector<std::uint8_t> digits = bytes_of("123456789");
  EXPECT_EQ(crc32_of(digits, 0), 0xCBF43926U);
  EXPECT_EQ(crc16_of(digits, 0), 0x29B1U);
  EXPECT_NE(crc32_of(digits, 1), 0xCBF43926U);
  EXPECT_NE(crc16_of(digits, 1), 0x29B1U);
}

// By hand: local times remote is folded at bit 20, then to 14 bits.
TEST(EcmpHash, SourcePortsOfQueuePairs) {
  EXPECT_EQ(roce_source_port(1, 1), 0xC001);
  EXPECT_EQ(roce_source_port(1 << 20, 1), 0xC001);
  EXPECT_EQ(roce_source_port(0x4000, 1), 0xC001);
  EXPECT_EQ(roce_source_port(0x123, 0x101), 0xE427);
  for (std::uint32_t local = 1; local < 0xFFFFFF; local += 98765) {
    EXPECT_GE(roce_source_port(local, 77), 0xC000);
    EXPECT_EQ(roce_source_port(local, 0xABCDEF), roce_source_port(0xABCDEF, local)) << "both ends have the same port";
  }
}

TEST(EcmpHash, FieldsThatAreNotReadDoNotCount) {
  EcmpConfig config{.fields = {"src_ip", "dst_ip"}};
  const EcmpHash addresses(config);
  config.fields = {"src_port"};
  const EcmpHash port(config);
  std::size_t differ = 0;
  for (std::uint16_t p = 1; p < 100; ++p) {
    const FiveTuple first{.src_ip = 1, .dst_ip = 2, .src_port = 0}, other{.src_ip = 1, .dst_ip = 2, .src_port = p};
    EXPECT_EQ(addresses.choose(first, 5, 64), addresses.choose(other, 5, 64));
    differ += port.choose(first, 5, 64) != port.choose(other, 5, 64) ? 1 : 0;
    EXPECT_EQ(port.choose({.src_ip = 3, .dst_ip = p, .src_port = 9}, 5, 64), port.choose({.src_port = 9}, 5, 64));
  }
  EXPECT_GT(differ, 90U);
}

// A CRC is linear: the seed changes all values by the same bits, so flows that collide on one of 2^n links collide with
// every seed.
TEST(EcmpHash, SeedsDoNotSeparateFlowsThatCollideInACrc) {
  const EcmpHash crc(EcmpConfig{.hash = "crc32"}), ideal(EcmpConfig{.hash = "uniform"});
  std::size_t together = 0, pairs = 0;
  for (std::uint16_t p = 1; p < 512; ++p) {
    const FiveTuple a{.src_ip = 1, .dst_ip = 2, .src_port = 0xC000}, b{.src_ip = 1, .dst_ip = 2, .src_port = p};
    if (crc.choose(a, 1, 32) != crc.choose(b, 1, 32)) continue;
    ++pairs;
    for (std::uint32_t seed = 2; seed < 50; ++seed) EXPECT_EQ(crc.choose(a, seed, 32), crc.choose(b, seed, 32));
    together += ideal.choose(a, 2, 32) == ideal.choose(b, 2, 32) ? 1 : 0;
  }
  EXPECT_GT(pairs, 4U);
  EXPECT_LT(together, pairs);
}

TEST(EcmpHash, SwitchesHaveSeedsOfTheirOwnUnlessTheyAreTheSame) {
  EcmpConfig config;
  EXPECT_NE(EcmpHash(config).seed_of(0), EcmpHash(config).seed_of(1));
  config.same_seed = true;
  EXPECT_EQ(EcmpHash(config).seed_of(0), EcmpHash(config).seed_of(1));
}

TEST(EcmpHash, TheIdealHashIsEven) {
  const EcmpHash ideal(EcmpConfig{.hash = "uniform"});
  std::vector<int> counts(8);
  for (std::uint16_t p = 0; p < 8000; ++p) ++counts[ideal.choose({.src_ip = 1, .dst_ip = 2, .src_port = p}, 3, 8)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 120) << "four standard deviations";
}

}  // namespace
}  // namespace ms::clos
