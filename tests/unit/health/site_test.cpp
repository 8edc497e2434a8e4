// Drains that the whole site remembers, and the nodes that have more of them than their peers.
#include "health/act/site.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/safe_file.h"
#include "flow_fixture.h"
#include "health/commands/lemons.h"

namespace ms::health {
namespace {

HistoryEntry drain(double wall_s, const std::string& code = "gpu.ecc", std::uint32_t job = 1) {
  return {.wall_s = wall_s, .event = "drain", .code = code, .message = "m", .job_id = job, .strikes = 1};
}

TEST(Site, MergesEachOnceInTheOrderOfTime) {
  std::vector<double> times;
  for (const HistoryEntry& entry : merged({drain(3), drain(1)}, {drain(2), drain(3)})) times.push_back(entry.wall_s);
  EXPECT_EQ(times, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(merged({drain(1)}, {drain(1, "gpu.lost")}).size(), 2U);
}

class SiteTest : public FlowTest {
 protected:
  SiteTest() { policy_.paths.site = directory_ / "site"; }
  std::map<std::string, std::vector<HistoryEntry>> site() const { return read_site(policy_.paths.site); }
  void finish_afterwards() {
    for (const auto& work : afterwards_) work(world());
    afterwards_.clear();
  }
};

TEST_F(SiteTest, ADrainIsKeptThereByAProcessOfItsOwn) {
  EXPECT_EQ(prolog(), 69);
  EXPECT_FALSE(std::filesystem::exists(policy_.paths.site));  // the prolog did not touch what may hang
  finish_afterwards();
  ASSERT_EQ(site().count("node02"), 1U);
  EXPECT_EQ(site().at("node02").at(0).event, "drain");
  EXPECT_EQ(site().at("node02").at(0).code, "gpu.ecc");
  EXPECT_EQ(mode_of(policy_.paths.site), 0700U);
}

TEST_F(SiteTest, ANodeThatWasInstalledAnewKeepsItsPast) {
  prolog();
  finish_afterwards();
  std::filesystem::remove_all(policy_.paths.state);
  clock_.advance_s(1000);
  slurm_ = FakeSlurm(4);
  prolog();
  finish_afterwards();
  EXPECT_EQ(site().at("node02").size(), 2U);
}

TEST_F(SiteTest, WhatTheSiteMissedIsMadeUpFor) {
  std::ofstream(directory_ / "site") << "in the way";  // the storage is not there
  prolog();
  EXPECT_THROW(finish_afterwards(), Error);
  afterwards_.clear();
  std::filesystem::remove(directory_ / "site");
  clock_.advance_s(1000);
  slurm_ = FakeSlurm(4);
  prolog();
  finish_afterwards();
  EXPECT_EQ(site().at("node02").size(), 2U);
}

TEST_F(SiteTest, WithoutADirectoryNothingIsShared) {
  policy_.paths.site = "";
  prolog();
  EXPECT_TRUE(afterwards_.empty());
}

TEST_F(SiteTest, ManyAtOnceLoseNothing) {
  constexpr int kProcesses = 8;
  for (int i = 0; i < kProcesses; ++i) {
    if (::fork() != 0) continue;
    for (int n = 0; n < 5; ++n) share_history(policy_.paths.site, "node02", {drain(100 * i + n)});
    _exit(0);
  }
  int status = 0;
  while (::wait(&status) > 0) EXPECT_EQ(status, 0);
  EXPECT_EQ(site().at("node02").size(), 5U * kProcesses);
}

TEST_F(SiteTest, RefusesADirectoryThatOthersMayEnter) {
  std::filesystem::create_directory(policy_.paths.site);
  std::filesystem::permissions(policy_.paths.site, std::filesystem::perms::all);
  expect_error("site.write", [&] { share_history(policy_.paths.site, "node02", {drain(1)}); });
  EXPECT_THROW(site(), Error);
  expect_error("site.write", [&] { share_history(directory_ / "other", "../evil", {drain(1)}); });
}

TEST_F(SiteTest, WhatIsNoHistoryIsLeftOut) {
  share_history(policy_.paths.site, "node02", {drain(1), {.wall_s = 2, .event = "finding", .code = {}, .message = {}}});
  std::ofstream(policy_.paths.site + "/node03.jsonl") << "no JSON\n";
  std::ofstream(policy_.paths.site + "/-x y.jsonl") << "";
  std::filesystem::permissions(policy_.paths.site + "/node03.jsonl", std::filesystem::perms::owner_all);
  EXPECT_EQ(site().size(), 2U);
  EXPECT_EQ(site().at("node02").size(), 1U);
  EXPECT_TRUE(site().at("node03").empty());
}

TEST(Lemons, AreJudgedBesideTheirPeers) {
  struct Row {
    std::size_t nodes;
    std::vector<int> drains;  // of the first nodes
    std::vector<bool> lemons;
  };
  const Row rows[] = {
      {4, {1}, {false}},
      {4, {4}, {true}},
      {4, {3, 3, 3, 3}, {false, false, false, false}},  // all alike: it is not the node
      {1000, {1}, {false}},
      {1000, {3, 1}, {true, false}},
      {1000, std::vector<int>(60, 1), std::vector<bool>(60, false)},
      {2, {5, 4}, {false, false}},
      {1, {9}, {false}},  // nobody to compare it with
  };
  for (const Row& row : rows) {
    std::map<std::string, std::vector<HistoryEntry>> site;
    for (std::size_t node = 0; node < row.drains.size(); ++node)
      for (int i = 0; i < row.drains[node]; ++i) site[fmt::format("n{:03}", node)].push_back(drain(10 + i));
    std::vector<bool> lemons;
    for (const SiteRow& of : site_rows(site, row.nodes, 0)) lemons.push_back(of.lemon);
    EXPECT_EQ(lemons, row.lemons) << site_text(site_rows(site, row.nodes, 0), row.nodes);
  }
}

TEST(Lemons, OldAndWithdrawnDrainsDoNotCount) {
  const HistoryEntry withdrawn{.wall_s = 21, .event = "withdrawn", .code = "gpu.ecc", .message = {}};
  const auto rows = site_rows({{"n1", {drain(5), drain(20), withdrawn, drain(30, "gpu.lost")}}}, 4, 10);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].drains, 1);
  EXPECT_EQ(rows[0].last_code, "gpu.lost");
  EXPECT_EQ(site_text({}, 4), "none of 4 nodes was drained\n");
}

}  // namespace
}  // namespace ms::health
