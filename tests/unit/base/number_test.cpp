#include "base/number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace ms {
namespace {

static_assert(to_integer<int>(-2.9) == -2);

TEST(Number, OnlyWhatTheIntegerHolds) {
  EXPECT_EQ(to_integer<std::int64_t>(0x1p62), std::int64_t{1} << 62);
  EXPECT_EQ(to_integer<std::int64_t>(-0x1p63), INT64_MIN);
  EXPECT_EQ(to_integer<std::int64_t>(std::nextafter(0x1p63, 0)), INT64_MAX - 1023);
  EXPECT_EQ(to_integer<int>(2147483647.0), INT32_MAX);
  EXPECT_EQ(to_integer<std::uint8_t>(255.9), 255);
  for (const double beyond : {0x1p63, 5.5e48, -5.5e48, HUGE_VAL, -HUGE_VAL, std::nan("")})
    EXPECT_EQ(to_integer<std::int64_t>(beyond), std::nullopt) << beyond;
  EXPECT_EQ(to_integer<int>(2147483648.0), std::nullopt);
  EXPECT_EQ(to_integer<std::uint8_t>(256), std::nullopt);
  EXPECT_EQ(to_integer<std::uint64_t>(0x1p64), std::nullopt);
  EXPECT_EQ(to_integer<std::uint64_t>(-1), std::nullopt);
}

}  // namespace
}  // namespace ms
