// The tree of switches: both spellings, and what is refused, with its line.
#include "slurm/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace ms::slurm {
namespace {

using testing::HasSubstr;

// "node switch" for nodes, "switch>switch above" for switches.
std::string describe(const Topology& topology) {
  std::string text;
  const auto name = [&](int s) { return topology.switches[static_cast<std::size_t>(s)].name; };
  for (const auto& each : topology.switches) {
    text += each.name + ">" + (each.above == Topology::kNone ? "" : name(each.above)) + " ";
  }
  for (const auto& [node, leaf] : topology.leaf_of) text += node + ":" + name(leaf) + " ";
  return text;
}

TEST(Topology, ReadsTopologyConfAndWhatScontrolSays) {
  struct Row {
    const char* text;
    const char* tree;
    int depth;
  };
  const char* const kTree = "leaf1>spine leaf2>spine spine> node01:leaf1 node02:leaf2 node03:leaf1 node04:leaf2 ";
  const Row rows[] = {
      {"SwitchName=leaf1 Nodes=node[01,03]\nSwitchName=leaf2 Nodes=node[02,04]\nSwitchName=spine Switches=leaf[1-2]\n",
       kTree, 2},
      {"# a comment\n\nswitchname=leaf1  NODES=node[01,03] LinkSpeed=100 # eth\r\n"
       "SwitchName=leaf2\tNodes=node[02,04]\nSwitchName=spine Switches=leaf[1-2]",
       kTree, 2},
      {"SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[01,03]\n"  // Slurm 22.05, word for word
       "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=node[02,04]\n"
       "SwitchName=spine Level=1 LinkSpeed=1 Nodes=node[01-04] Switches=leaf[1-2]\n",
       kTree, 2},
      // The switch above first; a node that only it has.
      {"SwitchName=top Nodes=a,b,c Switches=low\nSwitchName=low Nodes=a,b", "top> low>top a:low b:low c:top ", 2},
      {"SwitchName=x Nodes=a\nSwitchName=y Nodes=b\n", "x> y> a:x b:y ", 1},
      {"BlockName=b1 Nodes=n[1-2]\nBlockName=b2 BlockIndex=1 Nodes=n3 BlockSize=2\nBlockSizes=2,4\n",
       "b1> b2> n1:b1 n2:b1 n3:b2 ", 1},
      {"SwitchName=leaf1 \\\n  Nodes=node[01,03]\nSwitchName=leaf2 \\ \r\nNodes=node[02,04]\nInclude top.conf\n", kTree,
       2},
      {"---\n- topology: other\n  block:\n    block_sizes:\n      - 4\n    blocks:\n      - block: b1\n        nodes: "
       "x\n"
       "- topology: default  # of the cluster\n  cluster_default: true\n  tree:\n    switches:\n"
       "      - switch: leaf1\n        nodes: \"node[01,03]\"\n      - switch: leaf2\n        nodes: node[02,04]\n"
       "      - switch: spine\n        children: leaf[1-2]\n",
       kTree, 2},
      {"- topology: t\n  block:\n    block_sizes: [2, 4]\n    blocks:\n    - block: b1\n      nodes: n[1-2]\n",
       "b1> n1:b1 n2:b1 ", 1},
      {"- topology: t\n  flat: true\n", "", 0},
      {"---\n- topology: t\n  cluster_default: true\n  flat:\n    route: direct\n    alpha_step_rank: true\n", "", 0},
      {"- topology: t\n  cluster_default: true\n  torus3d:\n    toruses:\n      - name: pod1\n        dims: {x: 4, y: "
       "4, "
       "z: 4}\n        nodes: n[1-64]\n        placements:\n          - dims: {x: 2, y: 2, z: 1}\n",
       "", 0},
      {"- topology: a\n  torus3d:\n    toruses:\n      - name: pod1\n- topology: b\n  cluster_default: true\n"
       "  block:\n    blocks:\n    - block: b1\n      nodes: n[1-2]\n",
       "b1> n1:b1 n2:b1 ", 1},
      {"", "", 0},
  };
  for (const Row& row : rows) {
    const Topology topology = parse_topology(row.text, "t", [](const std::string& name) {
      return name == "top.conf" ? std::optional<std::string>("SwitchName=spine Switches=leaf[1-2]\n") : std::nullopt;
    });
    EXPECT_EQ(describe(topology), row.tree) << row.text;
    EXPECT_EQ(topology.depth(), row.depth) << row.text;
  }
}

TEST(Topology, RefusesWithTheLine) {
  struct Row {
    const char* text;
    const char* message;
  };
  const Row rows[] = {
      {"- topology: t\n  block:\n    blocks:\n      - { block: b1, nodes: n1 }\n",
       "t:4: this style of YAML is not read"},
      {"- topology: t\n  tree:\n    switches:\n    - switch: s1\n      nodes: >-\n        n1,\n        n2\n",
       "t:5: this style of YAML is not read"},
      {"- topology: t\n  cube:\n    x: 1\n", "t:2: 'cube' is not understood"},
      {"Nodes=n1", "t:1: SwitchName=NAME was expected, not 'Nodes=n1'"},
      {"SwitchName=", "t:1: SwitchName=NAME was expected"},
      {"\n[x]", "t:2: SwitchName=NAME was expected, not '[x]'"},
      {"SwitchName=a Ports=4", "t:1: 'Ports=4' is not understood"},
      {"SwitchName=a Nodes=n[1", "t:1: 'n[1' is no hostlist"},
      {"SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "t:2: switch a is there twice"},
      {"SwitchName=a Switches=b", "t:1: switch b is not described"},
      {"SwitchName=a Switches=a", "t:1: switch a is above and under a"},
      {"SwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a",
       "t:3: switch a is above and under c"},
      {"SwitchName=a\nSwitchName=b Switches=a\nSwitchName=c Switches=a", "t:3: switch a is under two"},
      {"SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1", "t:2: node n1 is under a and under b"},
  };
  for (const Row& row : rows) {
    try {
      parse_topology(row.text, "t");
      FAIL() << "taken: " << row.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "slurm.topology") << row.text;
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_THAT(error.message(), HasSubstr(row.message)) << row.text;
    }
  }
}

// A text is refused long before it takes gigabytes or minutes.
TEST(Topology, IsBounded) {
  const auto refusal = [](const std::string& text) {
    try {
      parse_topology(text, "t");
    } catch (const Error& error) { return error.message(); }
    return std::string("taken");
  };
  std::string wide, chain, reversed;
  for (int i = 0; i < 400; ++i) wide += fmt::format("SwitchName=s{} Nodes=n[0-65535]\n", i);
  EXPECT_THAT(refusal(wide), HasSubstr("t:2: node n0 is under s0 and under s1"));
  std::string repeated = "SwitchName=top Switches=s[0-399]\n";
  for (int i = 0; i < 400; ++i) repeated += fmt::format("SwitchName=s{} Nodes=n{}-[0-60000]\n", i, i);
  EXPECT_EQ(refusal(repeated), "t:3: more than 65536 nodes");
  std::string children;
  for (int i = 0; i < 400; ++i) children += fmt::format("SwitchName=s{} Switches=t[0-60000]\n", i);
  EXPECT_EQ(refusal(children), "t:2: more than 65536 names");
  for (int i = 0; i < 60'000; ++i) {
    chain += fmt::format("SwitchName=s{} Switches=s{}\n", i, i + 1);
    reversed += fmt::format("SwitchName=s{} Switches=s{}\n", 60'000 - i, 60'000 - i - 1);
  }
  EXPECT_EQ(refusal(chain + "SwitchName=s60000 Nodes=n[1-60000]"), "t:65: more than 64 levels of switches");
  EXPECT_THAT(refusal(reversed + "SwitchName=s0 Nodes=n[1-60000]"), HasSubstr("more than 64 levels of switches"));
  std::string many;
  for (int i = 0; i < 70'000; ++i) many += fmt::format("SwitchName=s{}\n", i);
  EXPECT_EQ(refusal(many), "t:65537: more than 65536 switches");
}

TEST(Topology, AsksTheScontrolOnThePath) {
  const std::filesystem::path dir = std::filesystem::temp_directory_path() / fmt::format("ms-topology-{}", ::getpid());
  std::filesystem::create_directories(dir);
  const auto told = [&](std::string_view script) {
    std::ofstream(dir / "scontrol") << "#!/bin/sh\n" << script;
    std::filesystem::permissions(dir / "scontrol", std::filesystem::perms::owner_all);
    const std::string path = "/nowhere:" + dir.string();
    return ask_topology([&](const char*) { return path.c_str(); });
  };
  EXPECT_EQ(told("echo \"SwitchName=$1 Nodes=$2\"").text, "SwitchName=show Nodes=topology\n");
  EXPECT_EQ(told("echo 'scontrol: error: No topology information available' >&2").why_not,
            "scontrol: error: No topology information available");
  EXPECT_THAT(told("echo no controller >&2; exit 1").why_not, HasSubstr("no controller"));
  std::filesystem::remove_all(dir);
  EXPECT_EQ(ask_topology([](const char*) { return "/nowhere"; }).why_not, "there is no scontrol here");
  EXPECT_EQ(ask_topology([](const char*) -> const char* { return nullptr; }).why_not, "there is no scontrol here");
}

}  // namespace
}  // namespace ms::slurm
