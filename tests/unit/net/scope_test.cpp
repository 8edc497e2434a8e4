#include "net/judge/scope.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "base/file.h"

namespace ms::net {
namespace {

using testing::ElementsAre;

std::string refused(const std::string& named, const std::string& job, const std::string& launch) {
  try {
    nodes_in_scope(named, job, launch);
  } catch (const Error& error) { return error.kind(); }
  return "";
}

TEST(Scope, InsideAJobItsOwnNodesAndNobodyElses) {
  EXPECT_THAT(nodes_in_scope("", "n[1-3]", "srun"), ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(nodes_in_scope("n[2-3]", "n[1-3]", "srun"), ElementsAre("n2", "n3"));
  EXPECT_EQ(refused("n[3-4]", "n[1-3]", "srun"), "net.job");
  EXPECT_EQ(refused("n[3-4]", "n[1-3]", "ssh {node} {agent}"), "net.job");
}

TEST(Scope, OutsideOfOneSomebodyHasToSayWhoAndHow) {
  EXPECT_THAT(nodes_in_scope("n[1-2]", "", "ssh {node} {agent}"), ElementsAre("n1", "n2"));
  EXPECT_EQ(refused("", "", "ssh {node} {agent}"), "net.nodes");
  EXPECT_EQ(refused("n[1-2]", "", "srun"), "net.job");
  EXPECT_EQ(refused("n1,n1", "", "ssh {node} {agent}"), "net.nodes");
  EXPECT_EQ(refused("n[1", "", "ssh {node} {agent}"), "slurm.hostlist");
}

TEST(Scope, LeavesAreGroupsAndNodesOfNoneAreAlone) {
  const std::string path = testing::TempDir() + "netcheck-topology";
  write_file_atomic(path, "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4]\nSwitchName=top Switches=s[1-2]\n");
  const Layout layout = layout_of({"n3", "n1", "n9", "n4"}, read_topology(path));
  EXPECT_THAT(layout.leaf_of, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(layout.names, ElementsAre("s2", "s1", "of n9", "top"));
  EXPECT_THAT(layout.above, ElementsAre(3, 3, Layout::kNone, Layout::kNone));
  EXPECT_EQ(layout.distance(0, 3), 0);
  EXPECT_EQ(layout.distance(0, 1), 1);
  EXPECT_TRUE(layout.below(0, 3));
  EXPECT_FALSE(layout.below(2, 3));
}

}  // namespace
}  // namespace ms::net
