// The mesh: coordinates, groups and their global order.
#include "mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "mesh/config.h"

namespace ms::mesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Mesh, TpRunsFastestThenDpThenPp) {
  const Mesh mesh{.dp = 3, .pp = 2, .tp = 4};
  EXPECT_EQ(mesh.size(), 24);
  EXPECT_EQ(mesh.rank({.dp = 0, .pp = 0, .tp = 1}), 1);
  EXPECT_EQ(mesh.rank({.dp = 1, .pp = 0, .tp = 0}), 4);
  EXPECT_EQ(mesh.rank({.dp = 0, .pp = 1, .tp = 0}), 12);
  for (int rank = 0; rank < mesh.size(); ++rank) EXPECT_EQ(mesh.rank(mesh.coord(rank)), rank);
  EXPECT_THAT(mesh.along(Axis::tp, 6), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(mesh.along(Axis::dp, 6), ElementsAre(2, 6, 10));
  EXPECT_THAT(mesh.along(Axis::pp, 6), ElementsAre(6, 18));
}

TEST(Mesh, FromConfiguration) {
  EXPECT_EQ(make_mesh(2, 3, 4, 24), (Mesh{.dp = 2, .pp = 3, .tp = 4}));
  struct Case {
    std::int64_t dp, pp, tp, world;
    const char* message;
  };
  const Case cases[] = {
      {0, 1, 1, 1, "mesh.dp is 0"},
      {1, -2, 1, 1, "mesh.pp is -2"},
      {1, 1, std::int64_t{1} << 40, 1, "mesh.tp is 1099511627776"},
      {2, 2, 2, 9, "dp 2 x pp 2 x tp 2 does not equal the number of ranks, 9"},
      {2, 2, 1, 8, "does not equal the number of ranks, 8"},
      {1 << 24, 1 << 24, 1 << 24, 1, "does not equal the number of ranks, 1"},
      {1, 1, 1, 0, "does not equal the number of ranks, 0"},
  };
  for (const Case& c : cases) {
    try {
      make_mesh(c.dp, c.pp, c.tp, c.world);
      ADD_FAILURE() << "accepted: " << c.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_THAT(error.message(), HasSubstr(c.message));
    }
  }
}

TEST(Mesh, ConfigTableBindsEveryField) {
  MeshConfig config;
  ConfigSchema schema;
  schema.section("mesh", "How the ranks are divided.", config, kMeshFields);
  schema.load_text("[mesh]\ndp = 2\npp = 3\ntp = 4\nchunks = 5\nsequence_parallel = false\nschedule = 'gpipe'\n",
                   "test");
  schema.throw_if_problems();
  EXPECT_EQ(config.dp, 2);
  EXPECT_EQ(config.pp, 3);
  EXPECT_EQ(config.tp, 4);
  EXPECT_EQ(config.chunks, 5);
  EXPECT_FALSE(config.sequence_parallel);
  EXPECT_EQ(config.schedule, "gpipe");
  schema.set("mesh.chunks=0");
  EXPECT_FALSE(schema.problems().empty());
}

std::vector<std::string> names(const std::vector<GroupSpec>& groups) {
  std::vector<std::string> result;
  for (const GroupSpec& group : groups) result.push_back(group.name);
  return result;
}

TEST(Groups, OneGlobalOrder) {
  const Groups groups({.dp = 1, .pp = 2, .tp = 2}, 1, true);
  EXPECT_THAT(names(groups.all()),
              ElementsAre("world", "tp[dp 0 pp 0]", "tp[dp 0 pp 1]", "dp[pp 0 tp 0]", "dp[pp 0 tp 1]", "dp[pp 1 tp 0]",
                          "dp[pp 1 tp 1]", "pp[dp 0 tp 0]", "pp[dp 0 tp 1]", "pp.fwd[dp 0 tp 0] 0>1",
                          "pp.fwd[dp 0 tp 1] 0>1", "pp.bwd[dp 0 tp 0] 1>0", "pp.bwd[dp 0 tp 1] 1>0", "embed[dp 0 tp 0]",
                          "embed[dp 0 tp 1]", "tp.ring[dp 0 pp 0] 0>1", "tp.ring[dp 0 pp 0] 1>0",
                          "tp.ring[dp 0 pp 1] 0>1", "tp.ring[dp 0 pp 1] 1>0"));
  EXPECT_THAT(groups.all()[9].ranks, ElementsAre(0, 2));  // sender, receiver
  EXPECT_THAT(groups.all()[12].ranks, ElementsAre(3, 1));
  EXPECT_THAT(groups.all()[14].ranks, ElementsAre(1, 3));
  EXPECT_THAT(groups.all()[18].ranks, ElementsAre(3, 2));
}

TEST(Groups, ExpertsDivideDp) {
  const Mesh mesh{.dp = 4, .pp = 2, .tp = 2, .ep = 2};
  const Groups groups(mesh, 1, false), without({.dp = 4, .pp = 2, .tp = 2}, 1, false);
  const std::vector<GroupSpec> all = groups.all(), dense = without.all();
  ASSERT_EQ(std::ssize(all), groups.count());
  EXPECT_EQ(groups.count(), without.count() + 8 + 8);
  for (int i = 0; i < groups.count(); ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)].id, i);
  EXPECT_TRUE(std::equal(dense.begin(), dense.end(), all.begin())) << "the other groups are as they were";
  // Rank 13: pp 0 has 8 ranks, so pp 1, dp 2, tp 1.
  EXPECT_EQ(groups.along(Axis::ep, 13).name, "ep[dp 2-3 pp 1 tp 1]");
  EXPECT_THAT(groups.along(Axis::ep, 13).ranks, ElementsAre(13, 15));
  EXPECT_EQ(groups.along(Axis::edp, 13).name, "edp[ep 0 pp 1 tp 1]");
  EXPECT_THAT(groups.along(Axis::edp, 13).ranks, ElementsAre(9, 13));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    std::vector<GroupSpec> mine;
    for (const GroupSpec& group : all) {
      if (std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end()) mine.push_back(group);
    }
    EXPECT_EQ(groups.of(rank), mine) << rank;
  }
  EXPECT_THROW(make_mesh(4, 1, 1, 4, 3), Error);
}

// Whole experts on each rank of tp: ep runs over tp and then dp.
TEST(Groups, ExpertsDivideDpAndTp) {
  const Mesh mesh = make_mesh(4, 2, 2, 16, 4, 1, 1);
  EXPECT_EQ(mesh, (Mesh{.dp = 4, .pp = 2, .tp = 2, .ep = 4, .folds_tp = true}));
  EXPECT_EQ(mesh.edp(), 2);
  EXPECT_EQ(mesh.ep_rank({.dp = 3, .tp = 1}), 3);
  EXPECT_EQ(mesh.edp_rank({.dp = 3, .tp = 1}), 1);
  const Groups groups(mesh, 1, false);
  EXPECT_EQ(groups.along(Axis::ep, 13).name, "ep[dp 2-3 pp 1 tp 0-1]");
  EXPECT_THAT(groups.along(Axis::ep, 13).ranks, ElementsAre(12, 13, 14, 15));
  EXPECT_EQ(groups.along(Axis::edp, 13).name, "edp[ep 1 pp 1]");
  EXPECT_THAT(groups.along(Axis::edp, 13).ranks, ElementsAre(9, 13));
  const Groups within({.dp = 2, .pp = 1, .tp = 4, .ep = 2, .folds_tp = true}, 1, false);
  EXPECT_EQ(within.along(Axis::ep, 7).name, "ep[dp 1 pp 0 tp 2-3]");
  EXPECT_THAT(within.along(Axis::edp, 2).ranks, ElementsAre(0, 2, 4, 6));
}

TEST(Groups, OfFoldedExpertsAreConsistent) {
  for (const auto& [dp, pp, tp, ep] :
       {std::array{2, 1, 2, 1}, {2, 2, 2, 2}, {2, 1, 2, 4}, {3, 2, 4, 2}, {3, 1, 4, 4}, {4, 1, 3, 6}, {1, 1, 4, 1}}) {
    SCOPED_TRACE(testing::Message() << "dp " << dp << " pp " << pp << " tp " << tp << " ep " << ep);
    const Mesh mesh{.dp = dp, .pp = pp, .tp = tp, .ep = ep, .folds_tp = true};
    const Groups groups(mesh, 1, false);
    const std::vector<GroupSpec> all = groups.all();
    ASSERT_EQ(std::ssize(all), groups.count());
    std::set<std::string> seen;
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].id, static_cast<int>(i)) << all[i].name;
      EXPECT_TRUE(seen.insert(all[i].name).second) << all[i].name;
    }
    for (int rank = 0; rank < mesh.size(); ++rank) {
      std::vector<GroupSpec> mine;
      std::copy_if(all.begin(), all.end(), std::back_inserter(mine), [rank](const GroupSpec& group) {
        return std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end();
      });
      EXPECT_EQ(groups.of(rank), mine) << "rank " << rank;
      const GroupSpec shares = groups.along(Axis::ep, rank), copies = groups.along(Axis::edp, rank);
      EXPECT_EQ(shares.ranks.at(static_cast<std::size_t>(mesh.ep_rank(mesh.coord(rank)))), rank);
      EXPECT_EQ(copies.ranks.at(static_cast<std::size_t>(mesh.edp_rank(mesh.coord(rank)))), rank);
    }
  }
}

TEST(Mesh, RefusesExpertsThatCannotBeSharedSo) {
  EXPECT_EQ(make_mesh(2, 1, 4, 8, 2, 1, 4).folds_tp, false) << "as many shards as tp";
  struct Case {
    std::int64_t dp, tp, ep, expert_tp;
    const char* message;
  };
  for (const Case& c : {Case{2, 4, 2, 2, "mesh.expert_tp = 2 is neither 1 nor mesh.tp = 4"},
                        Case{2, 4, 3, 1, "mesh.ep = 3 does not divide mesh.dp = 2 x mesh.tp = 4"},
                        Case{4, 3, 2, 1, "mesh.ep = 2 does not divide mesh.dp = 4 x mesh.tp = 3"}}) {
    try {
      make_mesh(c.dp, 1, c.tp, c.dp * c.tp, c.ep, 1, c.expert_tp);
      ADD_FAILURE() << "accepted: " << c.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "mesh.size");
      EXPECT_THAT(error.message(), HasSubstr(c.message));
    }
  }
}

TEST(Groups, ContextFoldsIntoDp) {
  const Mesh mesh = make_mesh(2, 2, 2, 16, 1, 2);
  EXPECT_EQ(mesh, (Mesh{.dp = 4, .pp = 2, .tp = 2, .cp = 2}));
  EXPECT_EQ(mesh.batch_parts(), 2);
  EXPECT_EQ(mesh.batch_part(3), 1);
  const Groups groups(mesh, 1, false), without({.dp = 4, .pp = 2, .tp = 2}, 1, false);
  const std::vector<GroupSpec> all = groups.all(), dense = without.all();
  ASSERT_EQ(std::ssize(all), groups.count());
  EXPECT_EQ(groups.count(), without.count() + 8 + 16);
  for (int i = 0; i < groups.count(); ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)].id, i);
  EXPECT_TRUE(std::equal(dense.begin(), dense.end(), all.begin())) << "the other groups are as they were";
  EXPECT_EQ(groups.along(Axis::cp, 13).name, "cp[dp 2-3 pp 1 tp 1]");
  EXPECT_THAT(groups.along(Axis::cp, 13).ranks, ElementsAre(13, 15));
  const auto ring = groups.ring(Axis::cp, 13);
  EXPECT_EQ(ring->out.name, "cp.ring[dp 2-3 pp 1 tp 1] 0>1");
  EXPECT_THAT(ring->out.ranks, ElementsAre(13, 15));
  EXPECT_THAT(ring->in.ranks, ElementsAre(15, 13));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    std::vector<GroupSpec> mine;
    for (const GroupSpec& group : all)
      if (std::ranges::find(group.ranks, rank) != group.ranks.end()) mine.push_back(group);
    EXPECT_EQ(groups.of(rank), mine) << rank;
  }
  for (const auto& [world, cp] : {std::pair{8, 2}, {16, 3}, {16, 0}})
    EXPECT_THROW(make_mesh(2, 2, 2, world, 1, cp), Error);
}

TEST(Groups, ShardGroupsDivideDp) {
  const Mesh mesh{.dp = 8, .pp = 2, .tp = 2, .ep = 2, .shard_groups = 2};
  const Groups groups(mesh, 1, false), without({.dp = 8, .pp = 2, .tp = 2, .ep = 2}, 1, false);
  const std::vector<GroupSpec> all = groups.all(), undivided = without.all();
  ASSERT_EQ(std::ssize(all), groups.count());
  EXPECT_EQ(groups.count(), without.count() + 32 / 4 + 32 / 2 + 32 / 2 + 32 / 2);
  for (int i = 0; i < groups.count(); ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)].id, i);
  EXPECT_TRUE(std::equal(undivided.begin(), undivided.end(), all.begin())) << "the other groups are as they were";
  // Rank 27: pp 1, dp 5, tp 1.
  EXPECT_EQ(groups.shard(false, 27)->name, "dp.shard[pp 1 tp 1] 1");
  EXPECT_THAT(groups.shard(false, 27)->ranks, ElementsAre(25, 27, 29, 31));
  EXPECT_EQ(groups.replicate(false, 27)->name, "dp.replicate[pp 1 tp 1] 1");
  EXPECT_THAT(groups.replicate(false, 27)->ranks, ElementsAre(19, 27));
  EXPECT_EQ(groups.shard(true, 27)->name, "edp.shard[ep 1 pp 1 tp 1] 1");
  EXPECT_THAT(groups.shard(true, 27)->ranks, ElementsAre(27, 31));
  EXPECT_THAT(groups.replicate(true, 27)->ranks, ElementsAre(19, 27));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    std::vector<GroupSpec> mine;
    for (const GroupSpec& group : all) {
      if (std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end()) mine.push_back(group);
    }
    EXPECT_EQ(groups.of(rank), mine) << rank;
  }
}

// With one shard group, with groups of one rank, and for experts that a group holds once, there is nothing to divide.
TEST(Groups, ShardGroupsOfAllOrOneAreNoGroups) {
  for (const int shard_groups : {1, 8}) {
    const Mesh mesh{.dp = 8, .pp = 1, .tp = 1, .shard_groups = shard_groups};
    const Groups groups(mesh, 1, false);
    EXPECT_FALSE(groups.shard(false, 3) || groups.replicate(false, 3) || groups.shard(true, 3));
    EXPECT_EQ(groups.count(), Groups({.dp = 8, .pp = 1, .tp = 1}, 1, false).count());
    EXPECT_EQ(mesh.shard_place(false, {.dp = 3}).shards, 8 / shard_groups);
  }
  const Mesh mesh{.dp = 8, .pp = 1, .tp = 1, .ep = 4, .shard_groups = 2};
  EXPECT_TRUE(Groups(mesh, 1, false).shard(false, 3));
  EXPECT_FALSE(Groups(mesh, 1, false).shard(true, 3));
  EXPECT_EQ(mesh.shard_place(true, {.dp = 5}).groups(), 2);
  EXPECT_EQ(mesh.shard_place(true, {.dp = 5}).group(), 1);
}

TEST(Groups, TpRanksStandInARing) {
  EXPECT_FALSE(Groups({.dp = 2, .pp = 2, .tp = 1}, 1, false).ring(Axis::tp, 0));
  const Groups groups({.dp = 2, .pp = 2, .tp = 3}, 1, true);
  // Ranks 9, 10, 11: dp 1 of the last stage.
  const auto middle = groups.ring(Axis::tp, 10), last = groups.ring(Axis::tp, 11);
  EXPECT_EQ(middle->in.name, "tp.ring[dp 1 pp 1] 0>1");
  EXPECT_THAT(middle->in.ranks, ElementsAre(9, 10));  // sender, receiver
  EXPECT_EQ(last->out.name, "tp.ring[dp 1 pp 1] 2>0");
  EXPECT_THAT(last->out.ranks, ElementsAre(11, 9));
  // Between two ranks the way there and the way back are different groups.
  const auto pair = Groups({.dp = 1, .pp = 1, .tp = 2}, 1, false).ring(Axis::tp, 0);
  EXPECT_THAT(pair->out.ranks, ElementsAre(0, 1));
  EXPECT_THAT(pair->in.ranks, ElementsAre(1, 0));
  EXPECT_NE(pair->out.id, pair->in.id);
}

TEST(Groups, ChunksCloseTheRing) {
  const Groups open({.dp = 1, .pp = 3, .tp = 1}, 1, false);
  EXPECT_FALSE(open.channel(Channel::forward_in, 0));
  EXPECT_FALSE(open.channel(Channel::backward_out, 0));
  EXPECT_FALSE(open.channel(Channel::forward_out, 2));
  EXPECT_FALSE(open.channel(Channel::backward_in, 2));
  EXPECT_FALSE(open.embedding(0));
  const Groups ring({.dp = 1, .pp = 3, .tp = 1}, 2, false);
  EXPECT_EQ(ring.channel(Channel::forward_in, 0)->name, "pp.fwd[dp 0 tp 0] 2>0");
  EXPECT_EQ(ring.channel(Channel::backward_out, 0)->name, "pp.bwd[dp 0 tp 0] 0>2");
  // With two pp ranks the way there and the way back are different channels even in one direction.
  const Groups two({.dp = 1, .pp = 2, .tp = 1}, 2, false);
  EXPECT_THAT(two.channel(Channel::forward_out, 0)->ranks, ElementsAre(0, 1));
  EXPECT_THAT(two.channel(Channel::forward_in, 0)->ranks, ElementsAre(1, 0));
  EXPECT_NE(two.channel(Channel::forward_out, 0)->id, two.channel(Channel::forward_in, 0)->id);
  EXPECT_NE(two.channel(Channel::forward_out, 0)->id, two.channel(Channel::backward_in, 0)->id);
}

TEST(Groups, AlonePipelineHasNoChannels) {
  const Groups groups({.dp = 2, .pp = 1, .tp = 1}, 1, true);
  EXPECT_EQ(groups.count(), 1 + 2 + 1 + 2);
  for (const Channel channel :
       {Channel::forward_in, Channel::forward_out, Channel::backward_in, Channel::backward_out}) {
    EXPECT_FALSE(groups.channel(channel, 0));
  }
  EXPECT_FALSE(groups.embedding(0));
}

class EveryMesh : public testing::TestWithParam<std::tuple<int, int, int, int, bool>> {};

TEST_P(EveryMesh, GroupsAreConsistent) {
  const auto [dp, pp, tp, chunks, tied] = GetParam();
  const Mesh mesh{.dp = dp, .pp = pp, .tp = tp};
  const Groups groups(mesh, chunks, tied);
  const std::vector<GroupSpec> all = groups.all();
  EXPECT_EQ(std::ssize(all), groups.count());
  std::set<std::string> seen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].id, static_cast<int>(i)) << all[i].name;
    EXPECT_TRUE(seen.insert(all[i].name).second) << all[i].name;
    EXPECT_EQ(std::set<int>(all[i].ranks.begin(), all[i].ranks.end()).size(), all[i].ranks.size()) << all[i].name;
  }
  for (int rank = 0; rank < mesh.size(); ++rank) {
    std::vector<GroupSpec> mine;  // by membership, which is the definition
    std::copy_if(all.begin(), all.end(), std::back_inserter(mine), [rank](const GroupSpec& group) {
      return std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end();
    });
    EXPECT_EQ(groups.of(rank), mine) << "rank " << rank;
    // What one rank sends, the next receives: the same group seen from both ends.
    if (const auto out = groups.channel(Channel::forward_out, rank)) {
      EXPECT_EQ(out->ranks[0], rank);
      EXPECT_EQ(groups.channel(Channel::forward_in, out->ranks[1]), out);
    }
    if (const auto out = groups.channel(Channel::backward_out, rank)) {
      EXPECT_EQ(out->ranks[0], rank);
      EXPECT_EQ(groups.channel(Channel::backward_in, out->ranks[1]), out);
    }
    const auto ring = groups.ring(Axis::tp, rank);
    ASSERT_EQ(ring.has_value(), tp > 1);
    if (ring) {
      const Coord at = mesh.coord(rank);
      const int next = mesh.rank({.dp = at.dp, .pp = at.pp, .tp = (at.tp + 1) % tp});
      EXPECT_THAT(ring->out.ranks, ElementsAre(rank, next));
      EXPECT_EQ(groups.ring(Axis::tp, next)->in, ring->out);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Small, EveryMesh,
                         testing::Combine(testing::Values(1, 2, 3), testing::Values(1, 2, 3, 4), testing::Values(1, 2),
                                          testing::Values(1, 2), testing::Bool()));

}  // namespace
}  // namespace ms::mesh
