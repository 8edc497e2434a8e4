#include "base/utc.h"

#include <gtest/gtest.h>

namespace ms {
namespace {

TEST(Utc, TextsAndSecondsAgree) {
  constexpr double kNoon = 1769860800;
  EXPECT_EQ(utc_text(kNoon), "2026-01-31T12:00:00Z");
  EXPECT_EQ(utc_seconds("2026-01-31T12:00:00Z"), kNoon);
  EXPECT_EQ(utc_seconds("1970-01-01T00:00:00Z"), 0);
}

TEST(Utc, RefusesOtherTexts) {
  for (const char* bad : {"", "2026-01-31", "2026-01-31T12:00:00", "2026-02-30T12:00:00Z", "2026-01-31T24:00:00Z",
                          "2026-01-31T12:00:00Zx", "yesterday"}) {
    EXPECT_EQ(utc_seconds(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace ms
