// A whole node of eight adapters, made of files.
#include "net/measure/counters.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "fake_node.h"
#include "net/measure/facts_json.h"

namespace ms::net {
namespace {

using test::FakeNode;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> codes_of(const std::vector<Finding>& findings) {
  std::vector<std::string> codes;
  for (const Finding& finding : findings) codes.push_back(finding.code + " " + finding.entity);
  return codes;
}

TEST(Counters, ReadsEveryPortOfANode) {
  FakeNode node(8);
  for (const std::string name : {"docker0", "veth1a2b"}) {  // what carries containers is not the fabric
    node.write("sys/class/net/" + name + "/carrier_down_count", "3\n");
    node.write("sys/class/net/" + name + (name == "docker0" ? "/bridge/forward_delay" : "/brport/port_no"), "1\n");
  }
  CounterReader reader{node.root()};
  const Snapshot snapshot = reader.read(100);
  EXPECT_EQ(snapshot.ports.size(), 8U + 9U);  // eight adapters with an interface each, and eth0
  EXPECT_EQ(snapshot.ports.at("mlx5_3/1").values.at("symbol_error"), 0);
  EXPECT_TRUE(snapshot.ports.at("mlx5_3/1").is_up);
  EXPECT_TRUE(snapshot.ports.contains("eth0"));
  EXPECT_FALSE(snapshot.ports.contains("lo"));
  EXPECT_THAT(snapshot.restricted, IsEmpty());
  EXPECT_EQ(read_snapshot(to_json(snapshot)), snapshot);
  const std::map<std::string, Snapshot> nodes{{"n1", snapshot}, {"n2", snapshot}};
  EXPECT_EQ(read_snapshots(to_json(nodes)), nodes);
}

// Every rule of the table: exactly its limit is nothing, one more is its finding, and nothing else is.
TEST(Counters, EveryRuleHasItsLimit) {
  FakeNode node(8);
  CounterReader reader{node.root()};
  for (const CounterRule& rule : counter_rules()) {
    const bool is_adapter = FakeNode::is_adapter_counter(rule.name);
    const std::string port = is_adapter ? "mlx5_5/1" : "eth0";
    ASSERT_TRUE(FakeNode::has(rule.name)) << rule.name;
    node.count(port, rule.name, 0);
    const Snapshot before = reader.read(0);
    node.count(port, rule.name, static_cast<std::int64_t>(rule.per_hour));
    EXPECT_THAT(judge_growth(before, reader.read(60)), IsEmpty()) << rule.name;
    node.count(port, rule.name, static_cast<std::int64_t>(rule.per_hour) + 1);
    const std::vector<Finding> found = judge_growth(before, reader.read(60));
    ASSERT_EQ(found.size(), 1U) << rule.name;
    EXPECT_EQ(found[0].entity, port);
    EXPECT_EQ(found[0].severity, rule.severity);
    EXPECT_THAT(found[0].message, HasSubstr(rule.name));
    EXPECT_EQ(found[0].code,
              rule.name == "link_downed" || rule.name == "carrier_down_count" ? "net.flap" : "net.counter");
    node.count(port, rule.name, 0);
  }
}

TEST(Counters, ALimitGrowsWithHours) {
  Snapshot before, after;
  before.ports["eth0"].values["rx_errors"] = 0;
  after.ports["eth0"].values["rx_errors"] = 25;
  after.wall_s = 3600;
  EXPECT_EQ(judge_growth(before, after).size(), 1U);
  after.wall_s = 3 * 3600;
  EXPECT_THAT(judge_growth(before, after), IsEmpty());
}

TEST(Counters, ResetGoneAndDown) {
  Snapshot before, after;
  before.ports["eth0"].values["link_downed"] = 7;
  after.ports["eth0"].values["link_downed"] = 0;
  EXPECT_THAT(judge_growth(before, after), IsEmpty());
  after.ports["eth0"].values["link_downed"] = 2;  // since the reset
  EXPECT_THAT(codes_of(judge_growth(before, after)), ElementsAre("net.flap eth0"));
  after.ports["eth0"] = {.is_up = false, .values = {}};
  EXPECT_THAT(codes_of(judge_growth(before, after)), ElementsAre("net.down eth0"));
  after.ports.clear();
  EXPECT_THAT(codes_of(judge_growth(before, after)), ElementsAre("net.gone eth0"));
}

// A restricted function gives EINVAL: a directory in place of the file gives no number either. It is remembered.
TEST(Counters, WhatGivesNoNumberIsRememberedAndNotJudged) {
  FakeNode node(2);
  node.refuse("mlx5_1/1", "symbol_error");
  node.remove("mlx5_1/1", "link_error_recovery");
  CounterReader reader{node.root()};
  const Snapshot first = reader.read(0);
  EXPECT_THAT(first.restricted, ElementsAre("mlx5_1/1 symbol_error"));
  EXPECT_FALSE(first.ports.at("mlx5_1/1").values.contains("symbol_error"));
  EXPECT_FALSE(first.ports.at("mlx5_1/1").values.contains("link_error_recovery"));
  node.count("mlx5_1/1", "symbol_error", 1000);  // readable from now on, but not tried again
  const Snapshot second = reader.read(1);
  EXPECT_THAT(second.restricted, ElementsAre("mlx5_1/1 symbol_error"));
  EXPECT_THAT(judge_growth(first, second), IsEmpty());
}

TEST(Counters, NoAdaptersAndNoFilesAtAll) {
  FakeNode node(0);
  EXPECT_EQ(CounterReader{node.root()}.read(0).ports.size(), 1U);
  EXPECT_THAT(CounterReader{Sysroot("/nowhere")}.read(0).ports, IsEmpty());
}

TEST(Flaps, AreTimedBetweenLooks) {
  FlapWatch watch(0), strict(2);
  const auto see = [&](double wall_s, bool is_up, std::int64_t downed) {
    Snapshot snapshot{.wall_s = wall_s, .ports = {}, .restricted = {}};
    snapshot.ports["mlx5_0/1"] = {.is_up = is_up, .values = {{"link_downed", downed}}};
    snapshot.ports["mlx5_1/1"] = {.is_up = true, .values = {{"link_downed", 40}}};
    watch.see(snapshot);
    strict.see(snapshot);
  };
  see(0, true, 3);
  EXPECT_THAT(watch.findings(), IsEmpty());
  see(1, false, 3);
  see(2.5, false, 4);
  EXPECT_EQ(watch.findings()[0].severity, Severity::critical);  // still down
  see(4, true, 4);
  const std::vector<Finding> found = watch.findings();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].entity, "mlx5_0/1");
  EXPECT_EQ(found[0].severity, Severity::warning);
  EXPECT_DOUBLE_EQ(*found[0].measured, 3);
  EXPECT_EQ(strict.findings().size(), 1U);
}

TEST(Flaps, BetweenTwoLooksAreKnownFromTheCounter) {
  FlapWatch watch(10);
  for (const std::int64_t downed : {3, 5}) {
    Snapshot snapshot{.wall_s = static_cast<double>(downed), .ports = {}, .restricted = {}};
    snapshot.ports["mlx5_0/1"].values["link_downed"] = downed;
    watch.see(snapshot);
  }
  ASSERT_EQ(watch.findings().size(), 1U);
  EXPECT_THAT(watch.findings()[0].message, HasSubstr("2 times"));
}

TEST(Flaps, ShortOnesAreNotToldWhereNobodyCountsThem) {
  FlapWatch watch(2);
  for (const auto& [wall_s, is_up] : std::vector<std::pair<double, bool>>{{0, true}, {1, false}, {1.5, true}}) {
    Snapshot snapshot{.wall_s = wall_s, .ports = {}, .restricted = {}};
    snapshot.ports["eth0"] = {.is_up = is_up, .values = {}};
    watch.see(snapshot);
  }
  EXPECT_THAT(watch.findings(), IsEmpty());
}

}  // namespace
}  // namespace ms::net
