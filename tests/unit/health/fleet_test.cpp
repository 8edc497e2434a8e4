// ms-diag fleet: nodes that differ are named, with what their peers have; where peers do not agree nobody is accused.
#include "health/commands/fleet.h"

#include <gmock/gmock.h>

#include <chrono>
#include <random>

#include "base/json.h"
#include "fake_node.h"

namespace ms::health {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A healthy node; memory differs a little between equal machines, as firmware keeps more or less of it.
NodeFacts healthy(int number) {
  NodeFacts node{.node = fmt::format("n{:04}", number), .state_known = true, .last_active_wall_s = 1};
  node.facts = {{"machine", "G593"},
                {"cpu.model", "EPYC 9654"},
                {"gpu.models", "8 x H100"},
                {"kernel", "6.1.0-1"},
                {"bios.version", "1.4"},
                {"gpu.driver", "570.124.06"},
                {"memory.mib", std::to_string(1031000 + (number * 7919) % 4000)},
                {"mount./scratch", "lustre 10.0.0.1@o2ib:/scratch flock,rw"},
                {"nccl.NCCL_IB_TC", "106"}};
  for (int hca = 0; hca < 8; ++hca) {
    node.facts[fmt::format("hca.mlx5_{}", hca)] = "MT_0838, firmware 28.39.1002";
    node.facts[fmt::format("pcie.mlx5_{}", hca)] = "x16, 32.0 GT/s PCIe";
    node.facts[fmt::format("link.mlx5_{}/1", hca)] = "4: ACTIVE, 400 Gb/sec (4X NDR), InfiniBand";
  }
  node.report.node = node.node;
  node.report.results = {{.code = "gpu.ecc"}};
  return node;
}
FleetInput cluster(int nodes) {
  FleetInput input;
  for (int i = 0; i < nodes; ++i) input.nodes.push_back(healthy(i));
  return input;
}
// "n0007 kernel", sorted by attribute.
std::vector<std::string> accused(const Fleet& fleet) {
  std::vector<std::string> list;
  for (const Difference& d : fleet.differences)
    for (const auto& [value, nodes] : d.others)
      for (const std::string& node : nodes) list.push_back(node + " " + d.attribute);
  return list;
}

TEST(Fleet, OfAThousandHealthyNodesNobodyIsAccused) {
  const Fleet fleet = compare_fleet(cluster(1000));
  EXPECT_THAT(accused(fleet), IsEmpty());
  EXPECT_THAT(fleet.undecided, IsEmpty());
  EXPECT_EQ(fleet.nagios_status(), 0);
}

// Forty of a thousand nodes, each with several facts that are not those of its peers.
TEST(Fleet, SeededNodesAreDescribedRight) {
  FleetInput input = cluster(1000);
  std::mt19937 random(7);
  std::vector<std::string> expected;
  for (int bad = 0; bad < 40; ++bad) {
    NodeFacts& node = input.nodes[static_cast<std::size_t>(bad * 25 + 3)];
    std::vector<std::string> attributes;
    for (const auto& [attribute, value] : node.facts)
      if (!::testing::Matches(::testing::AnyOf("machine", "cpu.model", "gpu.models"))(attribute))
        attributes.push_back(attribute);
    std::shuffle(attributes.begin(), attributes.end(), random);
    for (std::size_t i = 0; i < 3; ++i) {
      if (i == 2) {
        node.facts.erase(attributes[i]);  // not there at all
      } else {
        node.facts[attributes[i]] = attributes[i] == "memory.mib" ? "966000" : "another";
      }
      expected.push_back(node.node + " " + attributes[i]);
    }
  }
  const auto before = std::chrono::steady_clock::now();
  const Fleet fleet = compare_fleet(input);
  const std::string page = fleet_text(fleet) + fleet_json(fleet) + fleet_html(fleet);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  EXPECT_THAT(accused(fleet), ::testing::UnorderedElementsAreArray(expected));
  EXPECT_LT(seconds, 5);
  EXPECT_THAT(page, HasSubstr(kAbsent));
  EXPECT_EQ(fleet.nagios_status(), 1);
}

TEST(Fleet, WithoutAClearMajorityNobodyIsAccused) {
  FleetInput input = cluster(9);
  for (std::size_t i = 0; i < 3; ++i) input.nodes[i].facts["kernel"] = "6.1.0-2";  // 6 of 9 are no clear majority
  Fleet fleet = compare_fleet(input);
  EXPECT_THAT(accused(fleet), IsEmpty());
  ASSERT_EQ(fleet.undecided.size(), 1U);
  EXPECT_THAT(fleet.undecided[0].values.at("6.1.0-2"), ElementsAre("n0000", "n0001", "n0002"));
  EXPECT_EQ(fleet.nagios_status(), 0);
  EXPECT_THAT(fleet_text(fleet), HasSubstr("no node is accused"));
  input.nodes[2].facts["kernel"] = "6.1.0-1";
  fleet = compare_fleet(input);
  EXPECT_THAT(accused(fleet), ElementsAre("n0000 kernel", "n0001 kernel"));
  EXPECT_EQ(fleet.differences[0].agree, 7U);
  input.nodes.resize(2);  // two nodes cannot outvote each other
  input.nodes[0].facts["kernel"] = "6.1.0-1";
  EXPECT_THAT(accused(compare_fleet(input)), IsEmpty());
  EXPECT_THAT(compare_fleet(input).without_peers, ElementsAre("n0000", "n0001"));
}

TEST(Fleet, OtherKindsOfNodesAreComparedAmongThemselves) {
  FleetInput input = cluster(12);
  for (std::size_t i = 0; i < 6; ++i) {
    input.nodes[i].facts["machine"] = "R660";
    input.nodes[i].facts.erase("gpu.models");
    input.nodes[i].facts["kernel"] = "5.14";
  }
  input.nodes[0].facts["kernel"] = "5.15";
  input.nodes[11].facts["machine"] = "old";
  const Fleet fleet = compare_fleet(input);
  EXPECT_THAT(accused(fleet), ElementsAre("n0000 kernel"));
  EXPECT_THAT(fleet.without_peers, ElementsAre("n0011"));
  EXPECT_EQ(fleet.kinds.size(), 3U);
}

TEST(Fleet, ANodeThatLostAGpuDiffersFromOneKind) {
  FleetInput input = cluster(20);
  input.nodes[5].facts["gpu.models"] = "7 x H100";
  EXPECT_THAT(accused(compare_fleet(input)), ElementsAre("n0005 gpu.models"));
}

TEST(Fleet, AClockIsJudgedByItsPeersAndTheTimeOfTheQuestion) {
  FleetInput input = cluster(4);
  for (const NodeFacts& node : input.nodes) input.clocks[node.node] = {50.0, 50.2};  // the asker's own clock is off
  EXPECT_THAT(accused(compare_fleet(input)), IsEmpty());
  input.clocks["n0002"] = {53.0, 53.2};
  input.clocks["n0003"] = {45.0, 55.0};  // a slow answer says little
  EXPECT_THAT(accused(compare_fleet(input)), ElementsAre("n0002 clock"));
}

TEST(Fleet, SuspectsUntestedAndSilentNodesAreListed) {
  FleetInput input = cluster(5);
  input.nodes[1].report.results = {{.code = "gpu.ecc",
                                    .outcome = Outcome::critical,
                                    .findings = {{.code = "gpu.ecc", .entity = "gpu 3", .message = "4 <errors>"}}}};
  input.nodes[2].drains = 2;
  input.nodes[3].last_active_wall_s = 0;
  input.nodes[4].state_known = false;
  input.silent.emplace_back("n0009", "Connection refused\x1b[2J");
  const Fleet fleet = compare_fleet(input);
  EXPECT_EQ(fleet.nagios_status(), 2);
  ASSERT_EQ(fleet.suspects.size(), 2U);
  EXPECT_EQ(fleet.suspects[0].node, "n0001");
  EXPECT_THAT(fleet.untested, ElementsAre("n0003"));
  EXPECT_THAT(fleet.tests_unknown, ElementsAre("n0004"));
  const std::string text = fleet_text(fleet), html = fleet_html(fleet);
  EXPECT_THAT(text, HasSubstr("drained 2 times in 90 days"));
  EXPECT_THAT(text, HasSubstr("5 of 6 nodes answered"));
  EXPECT_THAT(html, HasSubstr("4 &lt;errors&gt;"));
  EXPECT_THAT(text + html, Not(HasSubstr("\x1b")));
  const Json json = Json::parse(fleet_json(fleet));
  EXPECT_EQ(json.at("suspects").at(0).get<std::string>("node"), "n0001");
  EXPECT_EQ(compare_fleet({.silent = {{"n1", "x"}}}).nagios_status(), 3);
}

class FactsOfNode : public FakeNode {};

TEST_F(FactsOfNode, AreWhatPeersShareAndNotWhatNamesTheNode) {
  put("/proc/sys/kernel/osrelease", "6.1.0-1");
  put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1-2 iommu=pt");
  put("/proc/meminfo", "MemTotal:       1048576 kB");
  put("/etc/nccl.conf", "NCCL_IB_TC=106\n# NCCL_DEBUG=INFO");
  put("/proc/self/mountinfo",
      "21 1 0:51 / /home rw,noatime - nfs4 fs1:/home rw,clientaddr=10.0.0.7,addr=10.0.0.1\n"
      "22 1 0:52 / /net rw - autofs auto rw\n23 22 0:53 / /net/alice rw - nfs4 fs2:/alice rw\n"
      "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n25 1 0:5 / /proc rw - proc proc rw");
  Evidence evidence(policy, kNow_s, 0, {});
  GpuSnapshot gpus;
  gpus.driver_version = "570.1";
  gpus.gpus.resize(1);
  gpus.gpus[0].name = "H100";
  evidence.set_gpus(gpus);
  const Facts facts = gather_facts(evidence);
  const Facts expected = {{"kernel", "6.1.0-1"},
                          {"kernel.options", "iommu=pt"},
                          {"memory.mib", "1024"},
                          {"nccl.NCCL_IB_TC", "106"},
                          {"mount./home", "nfs4 fs1:/home addr=10.0.0.1,noatime,rw"},
                          {"mount./", "ext4 rw"},
                          {"gpu.driver", "570.1"},
                          {"gpu.models", "1 x H100"}};
  EXPECT_EQ(facts, expected);
}

TEST(Fleet, FactsTravelAsOneLine) {
  const NodeFacts node = healthy(7);
  const std::string line = to_json(node);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const NodeFacts back = node_facts_from_json(line);
  EXPECT_EQ(back.facts, node.facts);
  EXPECT_EQ(back.last_active_wall_s, 1);
  for (const std::string bad : {"", "[]", "{}", "{\"node\":7}"}) EXPECT_THROW(node_facts_from_json(bad), Error) << bad;
}

}  // namespace
}  // namespace ms::health
