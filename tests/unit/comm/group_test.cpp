// Splitting groups: every rank computes the same result.
#include "comm/group.h"

#include <gtest/gtest.h>

namespace ms::comm {
namespace {

TEST(Split, MakesOneGroupPerColorInOrder) {
  const Group parent{"world", 0, {4, 5, 6, 7, 9}};
  const std::vector<Group> groups = split(parent, {1, 0, 1, -3, 0}, 10);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].ranks, (std::vector<int>{7}));
  EXPECT_EQ(groups[1].ranks, (std::vector<int>{5, 9}));
  EXPECT_EQ(groups[2].ranks, (std::vector<int>{4, 6}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(groups[static_cast<std::size_t>(i)].id, 10 + i);
    EXPECT_EQ(groups[static_cast<std::size_t>(i)].name, "world " + std::to_string(i));
  }
  EXPECT_EQ(groups[2].index_of(6), 1);
  EXPECT_EQ(groups[2].index_of(5), -1);
}

TEST(Split, OneColorKeepsTheParent) {
  const Group parent{"dp", 3, {2, 1, 0}};
  EXPECT_EQ(split(parent, {0, 0, 0}, 7).front().ranks, parent.ranks);
}

TEST(Split, NeedsAColorForEveryMember) { EXPECT_DEATH(split({"dp", 3, {2, 1}}, {0}, 7), "1 colors for the 2 members"); }

}  // namespace
}  // namespace ms::comm
