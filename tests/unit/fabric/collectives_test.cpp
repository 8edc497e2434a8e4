// Collectives of ranks that are threads: every kind, odd sizes and odd numbers of ranks, in the groups of a mesh.
#include "fabric/collectives.h"

#include <gmock/gmock.h>

#include <thread>

#include "comm/thread_world.h"
#include "net/report/collectives_report.h"
#include "tensor/cpu_device.h"

namespace ms::fabric {
namespace {

using net::bus_factor;
using net::Collective;
using net::CollectiveOptions;
using net::CollectiveRow;
using net::judge_collectives;
using net::kCollectives;
using net::mesh_splits;
using net::parse_collective;
using net::rail_split;
using net::Split;
using net::world_split;

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Collective> all_kinds() {
  std::vector<Collective> kinds;
  for (int i = 0; i < kCollectives; ++i) kinds.push_back(static_cast<Collective>(i));
  return kinds;
}

std::vector<CollectiveRow> run(int ranks, const std::vector<Split>& splits, const CollectiveOptions& options) {
  comm::ThreadHub hub(ranks, std::chrono::seconds(30));
  tensor::CpuPool pool({.workers = 2, .threads_per_op = 1});
  tensor::MatmulCache matmuls;
  std::vector<CollectiveRow> rows;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<comm::World> world = hub.world(rank);
      tensor::CpuDevice device(pool, matmuls);
      std::vector<CollectiveRow> mine = run_collectives(*world, {.host = device, .data = device}, splits, options, {});
      world->close();
      if (rank == 0) rows = std::move(mine);
    });
  }
  threads.clear();
  return rows;
}

TEST(Collectives, EveryKindIsRightForAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    const std::vector<CollectiveRow> rows = run(
        ranks, {world_split(ranks)}, {.what = all_kinds(), .least_bytes = 100, .most_bytes = 2000, .iterations = 3});
    ASSERT_EQ(rows.size(), 3U * kCollectives);
    for (const CollectiveRow& row : rows) {
      EXPECT_EQ(row.wrong, 0) << to_string(row.what) << " of " << row.bytes << " by " << ranks;
      EXPECT_EQ(row.bytes % (4 * ranks), 0);
      EXPECT_EQ(row.iterations, 3);
      EXPECT_GT(row.least_s, 0);
      EXPECT_LE(row.least_s, row.p50_s);
      EXPECT_LE(row.p50_s, row.p99_s);
    }
    EXPECT_THAT(judge_collectives(rows, 0), IsEmpty());
    EXPECT_EQ(judge_collectives(rows, 1e9).size(), 1U);
  }
}

TEST(Collectives, GroupsOfAMeshWorkSideBySide) {
  const std::vector<Split> splits = mesh_splits({.dp = 2, .pp = 1, .tp = 2});
  ASSERT_EQ(splits.size(), 2U);
  EXPECT_EQ(splits[0].name, "tp");
  EXPECT_THAT(splits[0].groups, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(splits[1].groups, ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  const std::vector<CollectiveRow> rows =
      run(4, splits, {.what = all_kinds(), .least_bytes = 1024, .most_bytes = 1024, .iterations = 2});
  ASSERT_EQ(rows.size(), 2U * kCollectives);
  for (const CollectiveRow& row : rows) {
    EXPECT_EQ(row.wrong, 0);
    EXPECT_EQ(row.groups, 2);
    ASSERT_EQ(row.group_p50_s.size(), 2U);
    for (const double seconds : row.group_p50_s) EXPECT_GT(seconds, 0);
  }
}

TEST(Collectives, RailsAreRanksAtTheSamePlaceOfTheirNodes) {
  EXPECT_THAT(rail_split(8, 1), IsEmpty());
  EXPECT_THAT(rail_split(8, 8), IsEmpty());
  EXPECT_THAT(rail_split(7, 2), IsEmpty());
  EXPECT_THAT(rail_split(6, 2).at(0).groups, ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3, 5)));
}

TEST(Collectives, FactorsAreThePublishedOnes) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_gather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::reduce_scatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_to_all, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::broadcast, 8), 1);
  EXPECT_DOUBLE_EQ(bus_factor(Collective::send_recv, 2), 1);
}

TEST(Collectives, WrongElementsAndSlowGroupsAreFindings) {
  CollectiveRow row;
  row.split = "dp";
  row.groups = 4;
  row.ranks = 2;
  row.bytes = 8;
  row.p50_s = 1;
  row.wrong = 3;
  row.group_p50_s = {1, 1.1, 2.5, 0.9};
  const std::vector<Finding> found = judge_collectives({row}, 0);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].code, "net.wrong");
  EXPECT_EQ(found[1].code + " " + found[1].entity, "net.slow dp 2");
}

TEST(Collectives, NamesAreRead) {
  for (const Collective kind : all_kinds()) EXPECT_EQ(parse_collective(std::string(to_string(kind))), kind);
  EXPECT_THROW(parse_collective("allreduce"), Error);
}

}  // namespace
}  // namespace ms::fabric
