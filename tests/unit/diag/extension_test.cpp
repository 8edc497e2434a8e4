// The active checks as ms-diag gets them from libms.so.
#include "health/commands/extension.h"

#include <gtest/gtest.h>

#include "../health/check_texts.h"

namespace ms::diag {
namespace {

TEST(ActiveChecks, AreComplete) {
  const std::vector<health::Check>& checks = ms_diag_extension()->checks();
  std::set<std::string_view> codes;
  double deadlines_s = 0;
  for (const health::Check& check : checks) {
    health::expect_complete(check);
    EXPECT_EQ(check.level, 2) << check.code;
    EXPECT_TRUE(codes.insert(check.code).second) << check.code << " is there twice";
    deadlines_s += check.deadline_s;
  }
  EXPECT_EQ(checks.size(), 6U);
  EXPECT_LE(deadlines_s, 120) << "ms-diag run --level 2 allows 150 s, passive checks included";
}

}  // namespace
}  // namespace ms::diag
