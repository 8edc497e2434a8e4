// Which ranks of a node read tokens, and whose rows its loader reads.
#include "train/run/data_feed.h"

#include <gtest/gtest.h>

#include <vector>

namespace ms::train {
namespace {

TEST(NodeReaders, AreTheRanksOfStagesWithTokens) {
  using Ranks = std::vector<int>;
  struct Row {
    mesh::Mesh mesh;
    bool reset_attention;
    Ranks node, ranks, dp_ranks;
  };
  const mesh::Mesh wide{.dp = 2, .pp = 4, .tp = 2};  // a stage has four ranks
  const std::vector<Row> rows{
      {{.dp = 4, .pp = 1, .tp = 2}, false, {2, 3, 4, 5}, {2, 3, 4, 5}, {1, 2}},
      {{.dp = 4, .pp = 1, .tp = 2, .cp = 2}, false, {2, 3, 4, 5}, {2, 3, 4, 5}, {0, 1}},  // pairs share sequences
      {wide, false, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1}},
      {wide, false, {4, 5, 6, 7, 8, 9}, {}, {}},         // neither first nor last stage
      {wide, false, {10, 11, 12, 13}, {12, 13}, {0}},    // the end of a middle stage, the beginning of the last
      {wide, false, {3, 12}, {3, 12}, {0, 1}},           // in the order of ranks, not of dp
      {wide, true, {4, 5, 6, 7}, {4, 5, 6, 7}, {0, 1}},  // all stages mask documents
      {{.dp = 1, .pp = 1, .tp = 8}, false, {5}, {5}, {0}},
  };
  for (const Row& row : rows) {
    Plan plan;
    plan.mesh = row.mesh;
    plan.settings.data.reset_attention = row.reset_attention;
    const NodeReaders readers = readers_of(plan, row.node);
    EXPECT_EQ(readers.ranks, row.ranks) << testing::PrintToString(row.node);
    EXPECT_EQ(readers.dp_ranks, row.dp_ranks) << testing::PrintToString(row.node);
  }
}

}  // namespace
}  // namespace ms::train
