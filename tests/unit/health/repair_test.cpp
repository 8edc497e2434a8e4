// The repair of nodes: its plan over twelve faults, three of which no remedy cures; killed at every state; its caps;
// drains of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_world.h"
#include "health/act/decide.h"
#include "health/act/remedies.h"
#include "health/repair/plan.h"
#include "health/repair/repair.h"

namespace ms::health {
namespace {

using testing::ElementsAre;
using testing::Not;

const std::vector<std::string> kUsers = {"root", "slurm"};

RepairConfig all_nodes() {
  RepairConfig policy;
  policy.max_nodes_percent = 100;
  return policy;
}

// Nodes that have a fault until one remedy is used on them; an empty one: none helps.
class Cluster {
 public:
  explicit Cluster(int nodes) : slurm(nodes) {}

  void add_fault(const std::string& node, const std::string& reason, const std::string& cure) {
    slurm.set_drained(node, reason);
    cures[node] = cure;
  }

  // One pass of a program that plans, keeps, acts, keeps. `killed`: it is killed before the act, after it and before
  // its result is kept; nullopt: not at all.
  std::optional<int> killed = {};
  void pass() {
    std::vector<slurm::Node> nodes;
    for (const auto& [name, node] : slurm.nodes) nodes.push_back(node);
    for (const Step& step : plan(repairs, nodes, policy, kUsers, clock.wall_s())) {
      slurm::Node& node = slurm.nodes.at(step.repair.node);
      if (step.act != Act::none && step.act != Act::gather && step.act != Act::bundle) {
        if (!may_touch(step.repair, node, kUsers)) continue;
        touched.push_back(node.name);
      }
      repairs[node.name] = repair_from_json(to_json(step.repair));
      events[node.name].push_back(step.event);
      if (killed == 0) continue;
      const Outcome3 outcome = act(step, node);
      if (killed == 1) continue;
      const std::string why = "because";
      repairs[node.name] = after(step, outcome, why, policy, clock.wall_s());
    }
    std::size_t active = 0;
    for (const auto& [name, repair] : repairs) {
      active += repair.stage >= Stage::remedy && repair.stage <= Stage::returning ? 1 : 0;
    }
    most_active = std::max(most_active, active);
    clock.advance_s(60);
    reboot();
  }
  void passes(int count) {
    for (int i = 0; i < count; ++i) pass();
  }

  FakeSlurm slurm;
  std::map<std::string, std::string> cures;
  std::map<std::string, Repair> repairs;
  std::map<std::string, std::vector<std::string>> events;
  std::vector<std::string> touched;
  RepairConfig policy = all_nodes();
  FakeClock clock;
  std::size_t most_active = 0;
  bool boots = true;

 private:
  Outcome3 act(const Step& step, slurm::Node& node) {
    std::string& cure = cures[node.name];
    switch (step.act) {
      case Act::remedy:
        if (cure == step.repair.remedy) cure = "cured";
        return Outcome3::good;
      case Act::reboot:
        node.states = {"IDLE", "DRAIN", "REBOOT_REQUESTED"};
        node.reason = step.repair.reason;
        return Outcome3::good;
      case Act::redrain:
        node.states = {"DOWN", "DRAIN"};
        node.reason = rebooted_reason(step.repair);
        return Outcome3::good;
      case Act::test: return cure == "cured" ? Outcome3::good : Outcome3::bad;
      case Act::undrain:
        std::erase(node.states, "DRAIN");
        if (!node.has_state("DOWN")) node.reason.clear();
        if (node.has_state("DOWN") && may_touch(step.repair, node, kUsers)) node.states = {"IDLE"}, node.reason.clear();
        return Outcome3::good;
      default: return Outcome3::good;
    }
  }

  // As Slurm 22.05 does it: nextstate=DOWN takes the drain away.
  void reboot() {
    for (auto& [name, node] : slurm.nodes) {
      if (!boots || !node.has_state("REBOOT_REQUESTED")) continue;
      node.states = {"DOWN"};
      node.reason += " : reboot issued : reboot complete";
      if (cures[name] == "reboot") cures[name] = "cured";
    }
  }
};

struct Fault {
  std::string reason, cure;
};
const Fault kFaults[] = {
    {"ms-diag:gpu.ecc gpu 3: 4 uncorrectable errors", "gpu-reset"},
    {"ms-diag:gpu.recovery gpu 0: the driver asks for a reset", "gpu-reset"},
    {"ms-diag:gpu.xid gpu 2: Xid 119", "reboot"},
    {"ms-diag:gpu.lost gpu 0000:17:00.0: GPU is lost", "reboot"},
    {"ms-diag:gpu.count node: 7 of 8", "driver-reload"},
    {"ms-diag:gpu.driver driver: does not answer", "driver-reload"},
    {"ms-diag:gpu.fabric gpu 0: not ready", "restart-fabric"},
    {"ms-diag:slurm.gres node: 7 of 8 devices", "restart-slurmd"},
    {"ms-diag:disk.mounts /scratch: is not mounted", "remount"},
    {"ms-diag:gpu.ecc gpu 1: errors that come back", ""},
    {"ms-diag:host.mce dimm A1: uncorrected", ""},
    {"ms-diag:net.link mlx5_0/1: down", ""},
};

void add_faults(Cluster& cluster) {
  for (int i = 0; i < 12; ++i) cluster.add_fault(fmt::format("node{:02}", i + 1), kFaults[i].reason, kFaults[i].cure);
}

void expect_repaired(const Cluster& cluster, std::string_view what) {
  for (int i = 0; i < 12; ++i) {
    const std::string name = fmt::format("node{:02}", i + 1);
    const bool curable = !kFaults[i].cure.empty();
    if (curable) { EXPECT_THAT(cluster.slurm.nodes.at(name).states, ElementsAre("IDLE")) << what << " " << name; }
    EXPECT_EQ(cluster.slurm.is_drained(name), !curable) << what << " " << name;
    EXPECT_EQ(cluster.repairs.at(name).stage, curable ? Stage::well : Stage::bundled) << what << " " << name;
  }
}

TEST(Repair, NineFaultsAreCuredAndThreeAreBundled) {
  Cluster cluster(12);
  add_faults(cluster);
  cluster.passes(30);
  expect_repaired(cluster, "undisturbed");
  EXPECT_THAT(cluster.events["node01"],
              ElementsAre("taken up", "remedy gpu-reset", "test level 2", "test level 3", "undrain", "returned"));
  EXPECT_THAT(cluster.events["node04"], ElementsAre("taken up", "remedy reboot", "drained again", "rebooted",
                                                    "test level 2", "test level 3", "undrain", "returned"));
  EXPECT_THAT(cluster.events["node11"], ElementsAre("taken up", "bundle"));  // no remedy is made up
  EXPECT_EQ(cluster.repairs["node11"].attempts.size(), 0);
}

// Killed before an act, or behind it before its result was kept, in each of the passes.
TEST(Repair, GoesOnAfterItWasKilledAtAnyState) {
  for (const int where : {0, 1}) {
    for (int when = 0; when < 14; ++when) {
      Cluster cluster(12);
      add_faults(cluster);
      cluster.passes(when);
      cluster.killed = where;
      cluster.pass();
      cluster.killed = std::nullopt;
      cluster.passes(30);
      expect_repaired(cluster, fmt::format("killed {} in pass {}", where, when));
      for (const auto& [name, repair] : cluster.repairs) {
        EXPECT_LE(std::ranges::count(repair.attempts, "gpu-reset", &Attempt::remedy), 1) << name;
      }
    }
  }
}

TEST(Repair, ARemedyThatKillsTheProgramEachTimeIsGivenUp) {
  Cluster cluster(1);
  cluster.add_fault("node01", kFaults[0].reason, "");
  cluster.pass();
  cluster.killed = 1;
  cluster.passes(3);
  EXPECT_EQ(cluster.repairs["node01"].tries, 3);
  cluster.killed = std::nullopt;
  cluster.passes(20);
  EXPECT_EQ(cluster.repairs["node01"].stage, Stage::bundled);
}

TEST(Repair, NoMoreThanTheShareOfNodesIsInRepair) {
  Cluster cluster(12);
  add_faults(cluster);
  cluster.policy.max_nodes_percent = 20;  // of twelve
  cluster.passes(90);
  EXPECT_EQ(cluster.most_active, 2);
  expect_repaired(cluster, "capped");
  Cluster least(12);
  add_faults(least);
  least.policy.max_nodes_percent = 0;
  least.passes(150);
  EXPECT_EQ(least.most_active, 1);
}

TEST(Repair, AFaultThatComesBackGetsTheNextRemedyAndThenAPerson) {
  Cluster cluster(1);
  for (const char* cure : {"gpu-reset", "reboot"}) {
    cluster.add_fault("node01", kFaults[0].reason, cure);
    cluster.passes(12);
    EXPECT_FALSE(cluster.slurm.is_drained("node01")) << cure;
    EXPECT_EQ(cluster.repairs["node01"].attempts.back().remedy, cure);
  }
  cluster.add_fault("node01", kFaults[0].reason, "gpu-reset");  // within the cool-down of both
  cluster.passes(5);
  EXPECT_EQ(cluster.repairs["node01"].stage, Stage::bundled);
  EXPECT_EQ(cluster.repairs["node01"].attempts.size(), 2);
}

TEST(Repair, SoManyAttemptsAWeek) {
  Cluster cluster(1);
  cluster.policy.cool_down_s = 0;
  cluster.policy.attempts_per_week = 3;
  for (int i = 0; i < 3; ++i) {
    cluster.add_fault("node01", kFaults[0].reason, "gpu-reset");
    cluster.passes(8);
    EXPECT_FALSE(cluster.slurm.is_drained("node01"));
  }
  cluster.add_fault("node01", kFaults[0].reason, "gpu-reset");
  cluster.passes(8);
  EXPECT_EQ(cluster.repairs["node01"].stage, Stage::bundled);
  cluster.slurm.nodes["node01"] = make_node("node01");  // a person puts it back
  cluster.pass();
  EXPECT_EQ(cluster.events["node01"].back(), "let go");
  cluster.clock.advance_s(8 * 86'400);
  cluster.add_fault("node01", kFaults[0].reason, "gpu-reset");
  cluster.passes(8);
  EXPECT_FALSE(cluster.slurm.is_drained("node01"));
}

TEST(Repair, OnlyAllowedRemediesAreUsed) {
  Cluster cluster(1);
  cluster.policy.remedies = {"gpu-reset"};
  cluster.add_fault("node01", kFaults[2].reason, "reboot");
  cluster.passes(10);
  EXPECT_EQ(cluster.repairs["node01"].stage, Stage::bundled);
  EXPECT_THAT(cluster.events["node01"], Not(testing::Contains("remedy reboot")));
}

TEST(Repair, DrainsOfOthersAreNotTouched) {
  Cluster cluster(3);
  cluster.slurm.set_drained("node01", "mine: fan");
  cluster.slurm.set_drained("node02", "Kill task failed");
  cluster.slurm.nodes["node03"].reason = kFaults[0].reason;  // left behind by a newer Slurm, in service
  cluster.passes(20);
  EXPECT_TRUE(cluster.touched.empty() && cluster.repairs.empty());
  EXPECT_EQ(cluster.slurm.nodes["node01"].reason, "mine: fan");
}

// Whose words a reason holds, and who set it.
TEST(Repair, ADrainThatAPersonWroteIsNotTakenUp) {
  const struct {
    std::string reason, user;
    bool taken;
  } rows[] = {
      {kFaults[0].reason, "root", true},
      {kFaults[0].reason, "slurm", true},
      {kFaults[0].reason + " : reboot complete", "slurm", true},
      {kFaults[0].reason, "bob", false},
      {kFaults[0].reason, "", false},
      {kFaults[0].reason + "; RMA 4711, do not return, bob", "bob", false},
      {kFaults[0].reason + "; RMA 4711, do not return, bob", "root", false},
      {kFaults[0].reason + "; also gpu.lost gpu 5, gpu.xid gpu 2", "root", true},
      {kFaults[0].reason + "; also gpu.lost gpu 5; wait for the vendor", "root", false},
      {"ms-diag:gpu.ecc gpu 1 State=IDLE", "root", false},
      {"ms-diag: gpu.ecc, seen by bob", "root", false},
      {"ms-diag:critical hands off", "root", false},
      {"MS-DIAG:gpu.ecc", "root", false},
      {"ms-diag:gpu.ecc", "bob", true},  // asks for a repair
  };
  for (const auto& row : rows) {
    Cluster cluster(1);
    cluster.slurm.set_drained("node01", row.reason, row.user);
    cluster.pass();
    EXPECT_EQ(cluster.repairs.contains("node01"), row.taken) << row.reason << " by " << row.user;
  }
  EXPECT_EQ(drain_users({{"SlurmUser", "slurm(64030)"}, {"SlurmdUser", "root(0)"}}),
            (std::vector<std::string>{"root", "slurm", "root"}));
}

TEST(Repair, AReasonThatAPersonSignsAnewIsTheirs) {
  Cluster cluster(1);
  cluster.add_fault("node01", kFaults[0].reason, "gpu-reset");
  cluster.passes(2);
  cluster.slurm.nodes["node01"].reason_user = "bob";
  cluster.touched.clear();
  cluster.passes(5);
  EXPECT_TRUE(cluster.touched.empty());
  EXPECT_EQ(cluster.repairs["node01"].stage, Stage::released);
}

// At each stage somebody changes the reason, lifts the drain, or both: from then on nothing is done to the node.
TEST(Repair, IsLetGoWhenSomebodySteps) {
  for (int when = 1; when < 9; ++when) {
    for (const char* reason : {"mine now", "ms-diag:gpu.lost gpu 0: GPU is lost; ask Bob", ""}) {
      Cluster cluster(1);
      cluster.add_fault("node01", kFaults[3].reason, "reboot");
      cluster.passes(when);
      if (cluster.repairs["node01"].stage == Stage::well) continue;
      if (*reason == '\0') cluster.slurm.nodes["node01"] = make_node("node01");
      if (*reason != '\0') cluster.slurm.set_drained("node01", reason);
      cluster.touched.clear();
      cluster.pass();
      EXPECT_TRUE(cluster.touched.empty()) << when << reason;
      EXPECT_EQ(cluster.repairs["node01"].stage, *reason == '\0' ? Stage::well : Stage::released) << when << reason;
      if (*reason == '\0') continue;
      cluster.slurm.set_drained("node01", kFaults[3].reason);  // they change it once more
      cluster.passes(3);
      EXPECT_TRUE(cluster.touched.empty()) << when << reason;
      cluster.slurm.nodes["node01"] = make_node("node01");
      cluster.pass();
      cluster.add_fault("node01", kFaults[3].reason, "reboot");  // a drain of ours
      cluster.pass();
      EXPECT_EQ(std::ranges::count(cluster.events["node01"], "taken up"), 2) << when << reason;
    }
  }
}

TEST(Repair, WaitsForJobsAndForWhatSlurmDoes) {
  for (const char* state : {"ALLOCATED", "MIXED", "COMPLETING", "MAINT", "POWERING_DOWN", "REBOOT_REQUESTED"}) {
    Cluster cluster(1);
    cluster.boots = false;
    cluster.add_fault("node01", kFaults[0].reason, "gpu-reset");
    cluster.slurm.nodes["node01"].states.emplace_back(state);
    cluster.passes(5);
    EXPECT_TRUE(cluster.touched.empty()) << state;
    EXPECT_EQ(cluster.repairs["node01"].stage, Stage::choose) << state;
    std::erase(cluster.slurm.nodes["node01"].states, state);
    cluster.passes(10);
    EXPECT_FALSE(cluster.slurm.is_drained("node01")) << state;
  }
}

TEST(Repair, ARebootThatDoesNotEndIsGivenUp) {
  Cluster cluster(1);
  cluster.boots = false;
  cluster.add_fault("node01", kFaults[3].reason, "reboot");
  cluster.passes(5);
  EXPECT_EQ(cluster.repairs["node01"].stage, Stage::remedy);
  cluster.clock.advance_s(cluster.policy.patience_s);
  cluster.passes(3);
  EXPECT_EQ(cluster.repairs["node01"].stage, Stage::bundled);
}

TEST(Repair, ANodeThatDoesNotAnswerIsAskedAgainUntilPatienceEnds) {
  RepairConfig policy;
  Step step;
  step.act = Act::test;
  step.repair.stage = Stage::test2;
  step.repair.since_wall_s = 1000;
  EXPECT_EQ(after(step, Outcome3::unknown, "", policy, 1000 + policy.patience_s).stage, Stage::test2);
  EXPECT_EQ(after(step, Outcome3::unknown, "", policy, 1001 + policy.patience_s).stage, Stage::choose);
  EXPECT_EQ(after(step, Outcome3::unknown, "", policy, 999).stage, Stage::test2) << "a clock that went back a little";
  EXPECT_EQ(after(step, Outcome3::unknown, "", policy, 999 - policy.patience_s).stage, Stage::choose);
  EXPECT_EQ(after(step, Outcome3::good, "", policy, 1001).stage, Stage::test3);
  policy.level = 2;
  EXPECT_EQ(after(step, Outcome3::good, "", policy, 1001).stage, Stage::returning);
}

TEST(Repair, AStateThatIsNoneIsRefused) {
  for (const char* text : {"", "{}", "[]", "{\"node\":\"n\",\"stage\":\"asleep\"}"}) {
    EXPECT_THROW(repair_from_json(text), Error) << text;
  }
}

TEST(Repair, EveryRemedyOfATableIsThere) {
  for (const std::string& name : RepairConfig{}.remedies) EXPECT_NE(find_remedy(name), nullptr) << name;
  EXPECT_EQ(RepairConfig{}.remedies.size(), remedies().size());
  for (const Fault& fault : kFaults) {
    for (const std::string_view name : remedies_of(code_of(fault.reason))) EXPECT_NE(find_remedy(name), nullptr);
  }
  EXPECT_TRUE(remedies_of("host.mce").empty());
}

}  // namespace
}  // namespace ms::health
