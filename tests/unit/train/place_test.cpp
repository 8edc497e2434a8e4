// ms-train plan --hostfile: hosts and switches joined, and what is said of the answer.
#include "train/commands/show_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ms::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kTwoLeaves =
    "SwitchName=leaf1 Nodes=n[1,3]\nSwitchName=leaf2 Nodes=n[2,4]\nSwitchName=spine Switches=leaf[1-2]\n";

Placed placed(const mesh::Mesh& mesh, const char* hosts, const char* topology) {
  return place_ranks(mesh, 1, {.hosts = slurm::parse_hostfile(hosts, "hosts"), .source = "hosts"},
                     {.topology = slurm::parse_topology(topology, "t"), .source = "t"});
}

TEST(Place, SaysWhoGoesWhereAndWhy) {
  const Placed there = placed({.dp = 4, .pp = 2, .tp = 2}, "n[1-4] slots=4", kTwoLeaves);
  EXPECT_THAT(there.notes, IsEmpty());
  const std::string text = placed_text(there, "c.toml", "order");
  for (const char* line :
       {"hosts     4 of 4 used, 16 of 16 slots, from hosts\n",
        "tp    8 groups of 2  all inside a node              all inside a node\n",
        "dp    4 groups of 4  all under one leaf switch      all over 2 levels of switches\n",
        "pp    8 edges        all over 2 levels of switches  all under one leaf switch\n",
        "  4-7  n3    leaf1   0   2-3  0-1\n", " 8-11  n2    leaf2   1   0-1  0-1\n",
        "SLURM_HOSTFILE=order SLURM_JOB_NUM_NODES=4 srun --mpi=pmix --distribution=arbitrary -n 16 ms-train run "
        "c.toml\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(order_text(there), "n1\nn1\nn1\nn1\nn3\nn3\nn3\nn3\nn2\nn2\nn2\nn2\nn4\nn4\nn4\nn4\n");
  EXPECT_THAT(placed_text(there, "c.toml", ""), HasSubstr("--order FILE writes the order"));
}

TEST(Place, JsonHasTheSame) {
  const auto json =
      nlohmann::json::parse(placed_json(placed({.dp = 2, .pp = 2, .tp = 1}, "n1\nn2\nn3\nn4\n", kTwoLeaves)));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["changed"], true);
  EXPECT_EQ(json["order"], (nlohmann::json{"n1", "n3", "n2", "n4"}));
  EXPECT_EQ(json["hosts"][1], (nlohmann::json{{"name", "n3"}, {"switch", "leaf1"}}));
  EXPECT_EQ(json["axes"]["dp"]["placed"]["groups_by_level"], (nlohmann::json{0, 2, 0, 0}));
  EXPECT_EQ(json["axes"]["dp"]["listed"]["groups_by_level"], (nlohmann::json{0, 0, 2, 0}));
  const auto flat = nlohmann::json::parse(placed_json(placed({.dp = 1, .pp = 1, .tp = 1}, "n1", "")));
  EXPECT_EQ(flat["hosts"][0]["switch"], nullptr);
}

TEST(Place, HostsThatSlurmCallsByTheirShortNames) {
  const Placed there =
      placed({.dp = 2, .pp = 1, .tp = 1}, "n1.example.org\nn2.example.org\nn3.example.org\n", kTwoLeaves);
  EXPECT_THAT(there.placement.order, ElementsAre(0, 2));
  EXPECT_THAT(there.notes, IsEmpty());
}

TEST(Place, NotesWhatTheOperatorShouldKnow) {
  const Placed unknown = placed({.dp = 2, .pp = 1, .tp = 1}, "n1\nx1\nx2\n", kTwoLeaves);
  EXPECT_THAT(unknown.notes, ElementsAre("x[1-2] under no switch of t: treated as far from all others"));
  EXPECT_THAT(placed_text(unknown, "c", ""), HasSubstr("without a common switch"));
  const Placed uneven = placed({.dp = 2, .pp = 1, .tp = 2}, "n1:3\nn2:3\n", kTwoLeaves);
  EXPECT_THAT(uneven.notes, ElementsAre(HasSubstr("tp 2 does not divide the slots of every host")));
  const Placed split = placed({.dp = 1, .pp = 1, .tp = 4}, "n1:2\nn2:2\nn3:2\n", kTwoLeaves);
  EXPECT_THAT(split.notes, ElementsAre(HasSubstr("1 of 1 tp groups span nodes")));
  EXPECT_THAT(placed_text(split, "c", ""), HasSubstr(" 2-3  n3    leaf1   0   0   2-3\n"));
  const Placed flat = placed({.dp = 2, .pp = 1, .tp = 1}, "n1\nn2\n", "");
  EXPECT_THAT(placed_text(flat, "c", ""), HasSubstr("none known (t): one flat network is assumed"));
  EXPECT_THAT(placed_text(flat, "c", ""), HasSubstr("all between nodes"));
}

TEST(Place, ALongTableIsFolded) {
  const Placed there = placed({.dp = 25, .pp = 4, .tp = 8}, "m[001-100]:8",
                              "SwitchName=a Nodes=m[001-050]\nSwitchName=b Nodes=m[051-100]");
  const std::string text = placed_text(there, "c", "");
  EXPECT_THAT(text, HasSubstr("  0-199  m[001-025]  a       0   0-24  0-7\n"));
  EXPECT_THAT(text, HasSubstr("600-799  m[076-100]  b       3   0-24  0-7\n"));
  EXPECT_THAT(text, Not(HasSubstr("m001 ")));
}

}  // namespace
}  // namespace ms::train
