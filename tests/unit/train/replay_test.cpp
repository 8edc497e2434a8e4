#include "train/run/replay.h"

#include <gtest/gtest.h>

namespace ms::train {
namespace {

TEST(Replay, TheMinorityIsWrong) {
  const struct {
    std::vector<std::uint64_t> bits;
    std::vector<int> wrong;
  } rows[] = {
      {{7, 7}, {}},       {{7, 8}, {}},       {{7, 8, 7}, {1}},          {{8, 7, 7}, {0}}, {{7, 8, 9}, {}},
      {{7, 8, 7, 8}, {}}, {{7, 8, 7, 9}, {}}, {{7, 8, 7, 9, 7}, {1, 3}}, {{}, {}},
  };
  for (const auto& row : rows) EXPECT_EQ(in_the_minority(row.bits), row.wrong) << testing::PrintToString(row.bits);
}

}  // namespace
}  // namespace ms::train
