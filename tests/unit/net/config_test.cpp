#include <gmock/gmock.h>

#include "fake_node.h"
#include "net/measure/fabric_config.h"
#include "net/measure/facts_json.h"

namespace ms::net {
namespace {

using test::FakeNode;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The facts of a fake node with these variables.
FabricFacts facts_of(const FakeNode& node, std::vector<std::string> variables = {}) {
  std::vector<char*> environment;
  for (std::string& text : variables) environment.push_back(text.data());
  environment.push_back(nullptr);
  return gather_facts(node.root(), environment.data());
}
std::vector<std::string> said(const std::vector<Finding>& findings) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings) texts.push_back(finding.str());
  return texts;
}
std::vector<std::string> judged(const FabricFacts& facts, double flap_s = 5) {
  return said(judge_config({{"n1", facts}}, flap_s));
}

TEST(Config, ASoundNodeIsSound) {
  FakeNode node(8);
  const FabricFacts facts = facts_of(
      node, {"NCCL_IB_HCA=mlx5", "NCCL_SOCKET_IFNAME=eth", "PATH=/bin", "NCCL_IB_TC=106", "NCCL_IB_GID_INDEX=3"});
  EXPECT_EQ(facts.adapters.size(), 8U);
  EXPECT_EQ(facts.environment.size(), 4U);
  EXPECT_EQ(facts.adapters.at("mlx5_2/1").interface, "ens2");
  EXPECT_EQ(facts.adapters.at("mlx5_2/1").traffic_class, 106);
  EXPECT_EQ(facts.adapters.at("mlx5_2/1").gids.size(), 4U);
  EXPECT_THAT(judged(facts), IsEmpty());
  EXPECT_EQ(read_facts(to_json(facts)), facts);
  EXPECT_THAT(facts.not_readable, Contains(HasSubstr("PFC")));
}

TEST(Config, RetriesThatEndBeforeAFlapDoes) {
  FakeNode node(1);
  EXPECT_DOUBLE_EQ(retry_window_s(20, 7), 4.096e-6 * 1048576 * 8);
  EXPECT_THAT(judged(facts_of(node, {"NCCL_IB_TIMEOUT=14"})), ElementsAre(HasSubstr("NCCL_IB_TIMEOUT=18")));
  EXPECT_THAT(judged(facts_of(node, {"NCCL_IB_TIMEOUT=18"})), IsEmpty());
  EXPECT_THAT(judged(facts_of(node), 60), ElementsAre(HasSubstr("net.retry")));  // NCCL's own are too short then
  EXPECT_THAT(judged(facts_of(node, {"NCCL_IB_RETRY_CNT=15"})), ElementsAre(HasSubstr("three bits")));
  EXPECT_THAT(judged(facts_of(node, {"NCCL_IB_TIMEOUT=40"})), ElementsAre(HasSubstr("1 to 31")));
}

TEST(Config, NamesThatSelectNothing) {
  FakeNode node(2);
  EXPECT_THAT(judged(facts_of(node, {"NCCL_SOCKET_IFNAME=bond"})), ElementsAre(HasSubstr("ens0, ens1, eth0")));
  EXPECT_THAT(judged(facts_of(node, {"NCCL_IB_HCA==mlx5"})), ElementsAre(HasSubstr("selects no adapter")));
  EXPECT_THAT(judged(facts_of(node, {"NCCL_IB_DISABLE=1"})), ElementsAre(HasSubstr("NCCL uses sockets")));
  node.write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
  EXPECT_THAT(judged(facts_of(node)), ElementsAre(HasSubstr("mlx5_1/1 is DOWN")));
  EXPECT_THAT(judged(facts_of(node, {"NCCL_IB_HCA=^mlx5_1"})), IsEmpty());
}

TEST(Config, NcclsListsOfNames) {
  EXPECT_TRUE(nccl_selects("mlx5", "mlx5_3/1"));
  EXPECT_TRUE(nccl_selects("mlx5_0,mlx5_3:1", "mlx5_3/1"));
  EXPECT_FALSE(nccl_selects("mlx5_3:2", "mlx5_3/1"));
  EXPECT_FALSE(nccl_selects("=mlx5", "mlx5_3/1"));
  EXPECT_TRUE(nccl_selects("=eth0", "eth0"));
  EXPECT_FALSE(nccl_selects("=eth0", "eth01"));
  EXPECT_FALSE(nccl_selects("^docker,lo", "docker0"));
  EXPECT_TRUE(nccl_selects("^docker,lo", "eth0"));
  EXPECT_TRUE(nccl_selects("^=eth0", "eth01"));
  EXPECT_FALSE(nccl_selects("^=eth0", "eth0"));
}

TEST(Config, Gids) {
  FakeNode node(1);
  EXPECT_THAT(judged(facts_of(node, {"NCCL_IB_GID_INDEX=0"})), ElementsAre(HasSubstr("not RoCE v2")));
  EXPECT_THAT(judged(facts_of(node, {"NCCL_IB_GID_INDEX=1"})), ElementsAre(HasSubstr("no IPv4")));
  EXPECT_THAT(judged(facts_of(node, {"NCCL_IB_GID_INDEX=4"})), ElementsAre(HasSubstr("no such GID")));
  node.gid(0, 3, "0000:0000:0000:0000:0000:0000:0000:0000", "");
  EXPECT_THAT(judged(facts_of(node)), ElementsAre(HasSubstr("no RoCE v2 GID")));
}

TEST(Config, MtuTrafficClassAndEcn) {
  FakeNode node(1);
  node.write("sys/class/net/ens0/mtu", "1500\n");
  node.write("sys/class/net/ens0/ecn/roce_rp/enable/3", "0\n");
  const std::vector<std::string> found = judged(facts_of(node, {"NCCL_IB_TC=41"}));
  EXPECT_THAT(found, Contains(HasSubstr("MTU 1500")));
  EXPECT_THAT(found, Contains(HasSubstr("class 106")));
  EXPECT_THAT(found, Contains(HasSubstr("receiving alone")));
  EXPECT_EQ(found.size(), 3U);
}

TEST(Config, NodesThatDifferAreNamedTogether) {
  FakeNode node(2), other(2), third(1);
  other.write("sys/class/net/eth0/mtu", "9000\n");
  const FabricFacts plain = facts_of(node, {"NCCL_IB_QPS_PER_CONNECTION=4"});
  const std::vector<std::string> found = said(judge_config({{"n1", plain},
                                                            {"n2", plain},
                                                            {"n3", plain},
                                                            {"n4", facts_of(other)},
                                                            {"n5", facts_of(other)},
                                                            {"n6", facts_of(third, {"NCCL_IB_QPS_PER_CONNECTION=4"})}},
                                                           5));
  EXPECT_THAT(found, Contains(HasSubstr("net.differs n[4-5]: NCCL_IB_QPS_PER_CONNECTION is not set, and 4 on 4 of 6")));
  EXPECT_THAT(found, Contains(HasSubstr("net.mtu n[4-5]: the MTU of eth0 is 9000, and 1500 on 4 of 6")));
  EXPECT_THAT(found, Contains(HasSubstr("net.hca n6: the number of active adapters is 1, and 2 on 5 of 6")));
}

TEST(Config, ANodeWithoutAnyFabricSaysNothing) {
  EXPECT_THAT(judged(gather_facts(Sysroot("/nowhere"), nullptr)), IsEmpty());
}

TEST(Config, NodesAreComparedWithAFabricFile) {
  FakeNode node(8);
  clos::Fabric fabric;
  const auto against = [&](const std::vector<std::string>& variables) {
    return said(judge_config({{"n1", facts_of(node, variables)}}, 5, &fabric));
  };
  EXPECT_THAT(against({}), IsEmpty());
  EXPECT_THAT(against({"NCCL_IB_QPS_PER_CONNECTION=4"}), ElementsAre(HasSubstr("net.plan")));
  EXPECT_THAT(against({"NCCL_PXN_DISABLE=1"}), ElementsAre(HasSubstr("NCCL_PXN_DISABLE=0")));
  fabric.roce.queue_pairs = 4;
  fabric.ecmp.hash = "adaptive";
  EXPECT_THAT(against({}), testing::UnorderedElementsAre(HasSubstr("NCCL_IB_QPS_PER_CONNECTION=4"),
                                                         HasSubstr("NCCL_IB_ADAPTIVE_ROUTING=1")));
  EXPECT_THAT(against({"NCCL_IB_QPS_PER_CONNECTION=4", "NCCL_IB_ADAPTIVE_ROUTING=1"}), IsEmpty());
  fabric = {};
  fabric.host.ports = 2;
  fabric.host.port_gbps = 200;
  const std::vector<std::string> found = against({"NCCL_IB_MERGE_NICS=0"});
  EXPECT_EQ(found.size(), 8U + 1U + 1U) << "the rate of each port, their number, and the variable";
  EXPECT_THAT(found, Each(HasSubstr("net.plan")));
}

}  // namespace
}  // namespace ms::net
