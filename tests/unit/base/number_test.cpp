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

TEST(Number, ReadsText) {
  EXPECT_EQ(whole_number<int>("-17"), -17);
  EXPECT_EQ(whole_number<std::uint64_t>("ff", 16), 255U);
  EXPECT_EQ(whole_number<double>("1.5e3"), 1500);
  for (const char* text : {"", " 1", "+1", "1 ", "1x", "0x1", "99999999999"})
    EXPECT_FALSE(whole_number<int>(text)) << text;
  EXPECT_EQ(leading_number<int>("12 of 30"), 12);
  EXPECT_FALSE(leading_number<int>("of 30"));
  std::string_view text = "7,x";
  EXPECT_EQ(take_number<int>(text), 7);
  EXPECT_EQ(text, ",x");
  EXPECT_FALSE(take_number<int>(text));
  EXPECT_EQ(text, ",x");
}

}  // namespace
}  // namespace ms
