#include "driver/slurm_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "driver/drains.h"
#include "driver/pool.h"

namespace ms::driver {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

// Shows two nodes, one whose slurmd would listen where nobody does and one of a raised weight, and a job on both.
class SmallSlurm final : public slurm::Commands {
 public:
  SmallSlurm() : Commands({}) {}
  slurm::Config config() const override { return {}; }
  std::vector<slurm::Node> nodes() const override {
    slurm::Node node;
    node.name = "n1";
    node.address = "127.0.0.1";
    node.port = 1;
    slurm::Node last;
    last.name = "n2";
    last.weight = slurm::Node::kKeptForLast + 1;
    return {node, last};
  }
  slurm::Job job(std::uint32_t id) const override {
    slurm::Job job;
    job.id = id;
    job.nodes = "n[1-2]";
    return job;
  }
};

slurm::Node node_in(const std::string& name, std::vector<std::string> states) {
  slurm::Node node;
  node.name = name;
  node.states = std::move(states);
  node.reason = "ecc";
  return node;
}

TEST(UnusableNodes, AreThoseThatSlurmStartsNothingOn) {
  const std::vector<std::string> allocation{"n1", "n2", "n3", "n4", "n5", "n6"};
  const std::vector<slurm::Node> nodes{node_in("n1", {"ALLOCATED"}), node_in("n2", {"DOWN", "NOT_RESPONDING"}),
                                       node_in("n3", {"ALLOCATED", "DRAIN"}), node_in("n4", {"ALLOCATED"}),
                                       node_in("n5", {"IDLE"})};
  EXPECT_THAT(unusable_nodes(allocation, nodes, "n[1-4,6]", {"n4", "other"}),
              ElementsAre(Pair("n2", "its state in Slurm is DOWN"), Pair("n3", "it is drained: ecc"),
                          Pair("n4", "its slurmd takes no connection"), Pair("n5", "Slurm took it out of the job")));
}

TEST(UnusableNodes, AnAnswerWithoutTheJobSaysNothingOfItsNodes) {
  for (const char* job_nodes : {"", "n[1-"}) {
    EXPECT_THAT(unusable_nodes({"n1", "n2"}, {node_in("n1", {"ALLOCATED"})}, job_nodes, {}), IsEmpty()) << job_nodes;
  }
}

TEST(UnusableNodes, EverySlurmdOfTheAllocationIsAsked) {
  EXPECT_THAT(ask_unusable_nodes(SmallSlurm(), 7, {"n1", "n2"}),
              ElementsAre(Pair("n1", "its slurmd takes no connection")));
  EXPECT_THAT(ask_unusable_nodes(SmallSlurm(), 7, {"n2"}), IsEmpty());
  EXPECT_THROW(ask_unusable_nodes(slurm::Commands({.scontrol = "/nowhere/scontrol", .conf = ""}), 7, {"n1"}), Error);
}

TEST(Drained, AreNodesOfTheRunThatAreUp) {
  std::vector<slurm::Node> nodes{node_in("n1", {"ALLOCATED", "DRAIN"}), node_in("n2", {"DOWN", "DRAIN"}),
                                 node_in("n3", {"MIXED"}), node_in("n4", {"IDLE", "DRAIN"})};
  nodes[0].reason = "fan is loud";
  nodes[0].reason_user = "root";
  EXPECT_THAT(drained_nodes(nodes, {"n1", "n2", "n3"}), ElementsAre(Pair("n1", "drained by root: fan is loud")));
}

TEST(KeptForLast, AreTheNodesOfARaisedWeight) {
  EXPECT_THAT(ask_kept_for_last(SmallSlurm()), ElementsAre("n2"));
  EXPECT_THAT(ask_kept_for_last(slurm::Commands({.scontrol = "/nowhere/scontrol", .conf = ""})), IsEmpty());
}

TEST(UnusableNodes, AreNotTakenUntilSlurmTakesThem) {
  Pool pool({"n1", "n2", "n3"});
  pool.choose(2, 2);
  pool.bar("n2", "DOWN");
  pool.found("n2");  // its agent lives
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n1", "n3"));
  EXPECT_FALSE(pool.choose(3, 3));
  EXPECT_THAT(pool.left_out(), ElementsAre("n2 is unusable (DOWN)"));
  pool.unbar("n2");
  EXPECT_THAT(*pool.choose(3, 3), ElementsAre("n1", "n2", "n3"));
}

TEST(ExcludedNodes, AreSuspectsOnceTheyAreReadmitted) {
  Pool pool({"n1", "n2", "n3"});
  pool.exclude("n2", "its GPU was lost");
  pool.found("n2");
  pool.unbar("n2");
  pool.clear("n2");
  EXPECT_EQ(pool.nodes().at("n2").role, NodeRole::excluded);
  pool.readmit("n2");
  pool.readmit("n3");
  EXPECT_EQ(pool.nodes().at("n2").role, NodeRole::suspect);
  EXPECT_EQ(pool.nodes().at("n3").role, NodeRole::spare);
  EXPECT_THAT(*pool.choose(2, 2), ElementsAre("n1", "n3"));
  pool.clear("n2");
  EXPECT_EQ(pool.nodes().at("n2").role, NodeRole::spare);
}

}  // namespace
}  // namespace ms::driver
