// The active checks as ms-diag gets them from libms.so.
#include "health/commands/extension.h"

#include <gtest/gtest.h>

#include "../health/check_texts.h"

namespace ms::diag {
namespace {

TEST(ActiveChecks, AreComplete) {
  const std::vector<health::Check>& checks = ms_diag_extension()->checks();
  std::set<std::string_view> codes;
  for (const health::Check& check : checks) {
    health::expect_complete(check);
    EXPECT_GE(check.level, 2) << check.code;
    EXPECT_TRUE(codes.insert(check.code).second) << check.code << " is there twice";
    EXPECT_TRUE(check.takes != 0 || check.cost == health::Cost::cheap) << check.code << " loads what it does not take";
    EXPECT_TRUE(!check.soaks || check.level == 3) << check.code;
  }
}

// What loads all cores is late because of itself or of the node's load. GPUs, disks and adapters may hang.
TEST(ActiveChecks, AccuseNoNodeOfTheirOwnSlowness) {
  for (const health::Check& check : ms_diag_extension()->checks()) {
    if (check.takes == 0) continue;
    EXPECT_EQ(check.on_hang.has_value(), check.takes != health::kNode) << check.code;
  }
}

TEST(ActiveChecks, OfLevelTwoTakeAtMostSixMinutesWhateverHangs) {
  for (const health::Resources resource : {health::kGpus, health::kBus, health::kDisk, health::kWire}) {
    double deadlines_s = 0;
    for (const health::Check& check : ms_diag_extension()->checks()) {
      if (check.level == 2 && (check.takes & resource) != 0) deadlines_s += check.deadline_s;
    }
    EXPECT_LE(deadlines_s, 360) << "the help of ms-diag says so";
  }
}

}  // namespace
}  // namespace ms::diag
