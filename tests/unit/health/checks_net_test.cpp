// net.link, net.flaps, net.errors, net.pcie, and how growth is counted across runs.
#include "fake_node.h"
#include "health/evidence/growth.h"

namespace ms::health {
namespace {

using ::testing::HasSubstr;

class Net : public FakeNode {
 protected:
  void interface(const std::string& name, const std::string& carrier, const std::string& operstate,
                 const std::string& speed = "100000", bool physical = true) {
    const std::string dir = "/sys/class/net/" + name;
    put(dir + "/operstate", operstate);
    put(dir + "/speed", speed);
    if (carrier.empty()) {
      remove(dir + "/carrier");
    } else {
      put(dir + "/carrier", carrier);
    }
    if (physical) make_directory(dir + "/device");
  }
  void port(const std::string& state, const std::string& physical, const std::string& rate = "400 Gb/sec (4X NDR)") {
    const std::string dir = "/sys/class/infiniband/mlx5_0/ports/1";
    put(dir + "/state", state);
    put(dir + "/phys_state", physical);
    put(dir + "/rate", rate);
  }
};
class NetLink : public Net {};
class NetFlaps : public Net {};
class NetErrors : public Net {};
class NetPcie : public FakeNode {
 protected:
  // A device below a bridge, as sysfs has them.
  void device(const std::string& kind, const std::string& name, const std::string& address, const std::string& lanes,
              const std::string& most, const std::string& bridge_most, const std::string& speed = "32.0 GT/s PCIe",
              const std::string& most_speed = "32.0 GT/s PCIe", const std::string& bridge_speed = "32.0 GT/s PCIe") {
    remove("/sys");
    const std::string bridge = "/sys/devices/pci0000:00/0000:00:01.0";
    const std::string dir = bridge + "/" + address;
    put(bridge + "/max_link_width", bridge_most);
    put(bridge + "/max_link_speed", bridge_speed);
    put(dir + "/current_link_width", lanes);
    put(dir + "/max_link_width", most);
    put(dir + "/current_link_speed", speed);
    put(dir + "/max_link_speed", most_speed);
    link("/sys/bus/pci/devices/" + address, "../../../devices/pci0000:00/0000:00:01.0/" + address);
    link("/sys/class/" + kind + "/" + name + "/device", "../../../devices/pci0000:00/0000:00:01.0/" + address);
  }
};

TEST_F(NetLink, ExpectedInterfaces) {
  struct Row {
    std::string carrier, operstate, speed;
    double gbps;
    Outcome outcome;
    std::string says;
  };
  const Row rows[] = {
      {"1", "up", "100000", -1, Outcome::pass, ""},
      {"1", "unknown", "-1", -1, Outcome::pass, ""},
      {"0", "down", "-1", -1, Outcome::critical, "is down: operstate down, carrier 0"},
      {"1", "dormant", "100000", -1, Outcome::critical, "is down"},
      {"", "down", "", -1, Outcome::critical, "switched off"},
      {"1", "up", "100000", 100, Outcome::pass, ""},
      {"1", "up", "25000", 100, Outcome::critical, "25 of 100 Gb/s"},
      {"1", "up", "-1", 100, Outcome::pass, ""},  // it does not say
  };
  policy.expect.links = {"eth0"};
  for (const Row& row : rows) {
    interface("eth0", row.carrier, row.operstate, row.speed);
    policy.expect.link_gbps = row.gbps;
    const Result result = run("net.link");
    EXPECT_OUTCOME(result, row.outcome) << row.operstate << " " << row.speed;
    if (row.outcome == Outcome::pass) continue;
    EXPECT_EQ(result.findings.at(0).entity, "eth0");
    EXPECT_THAT(result.findings[0].message, HasSubstr(row.says));
  }
}

TEST_F(NetLink, ExpectedPorts) {
  policy.expect.links = {"mlx5_0/1"};
  policy.expect.link_gbps = 400;
  EXPECT_OUTCOME(run("net.link"), Outcome::critical);  // not there
  port("4: ACTIVE", "5: LinkUp");
  EXPECT_OUTCOME(run("net.link"), Outcome::pass);
  port("4: ACTIVE", "5: LinkUp", "200 Gb/sec (2X NDR)");
  EXPECT_EQ(run("net.link").findings.at(0).measured, 200.0);
  port("4: ACTIVE", "5: LinkUp", "2.5 Gb/sec (1X SDR)");
  EXPECT_EQ(run("net.link").findings.at(0).measured, 2.5);
  port("1: DOWN", "2: Polling");
  EXPECT_THAT(run("net.link").findings.at(0).message, HasSubstr("2: Polling"));
  EXPECT_THAT(run("net.link").findings.at(0).remedy, HasSubstr("replace the cable"));
  port("1: DOWN", "3: Disabled");
  EXPECT_THAT(run("net.link").findings.at(0).remedy, HasSubstr("switched the port off"));
  port("2: INIT", "5: LinkUp");
  const Result waits = run("net.link");
  EXPECT_OUTCOME(waits, Outcome::critical);
  EXPECT_THAT(waits.findings.at(0).remedy, HasSubstr("no subnet manager"));
  EXPECT_EQ(waits.findings[0].blame, Blame::fabric);
  put("/sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet");
  EXPECT_THAT(run("net.link").findings.at(0).remedy, HasSubstr("network interface is up"));
}

TEST_F(NetLink, APortOnOneLaneOfFourWarns) {
  const auto put_port = [&](const std::string& adapter, const std::string& rate, const std::string& layer) {
    const std::string dir = "/sys/class/infiniband/" + adapter;
    put(dir + "/hca_type", "MT4123");
    put(dir + "/ports/1/state", "4: ACTIVE");
    put(dir + "/ports/1/phys_state", "5: LinkUp");
    put(dir + "/ports/1/rate", rate);
    put(dir + "/ports/1/link_layer", layer);
  };
  put_port("mlx5_0", "200 Gb/sec (4X HDR)", "InfiniBand");
  put_port("mlx5_1", "100 Gb/sec (2X HDR)", "InfiniBand");  // a splitter
  put_port("mlx5_3", "25 Gb/sec (1X EDR)", "Ethernet");
  EXPECT_OUTCOME(run("net.link"), Outcome::pass);
  put_port("mlx5_2", "50 Gb/sec (1X HDR)", "InfiniBand");
  const Result result = run("net.link");
  EXPECT_OUTCOME(result, Outcome::warn);
  EXPECT_THAT(entities(result), ::testing::ElementsAre("mlx5_2/1"));
  EXPECT_EQ(result.findings.at(0).measured, 1.0);
  policy.expect.links = {"mlx5_0/1", "mlx5_2/1"};
  EXPECT_OUTCOME(run("net.link"), Outcome::warn);
  policy.expect.links = {};
  put("/sys/class/infiniband/mlx5_2/hca_type", "MT4119");  // nothing to compare with
  EXPECT_OUTCOME(run("net.link"), Outcome::pass);
}

TEST_F(NetLink, AnExpectationThatIsNoNameIsNotThere) {
  make_directory("/sys/class/net/eth0");
  put("/etc/carrier", "1");
  put("/etc/operstate", "up");
  for (const std::string name : {"../../../etc", "..", "", "eth0/..", "mlx5_0/x", "/etc"}) {
    policy.expect.links = {name};
    const Result result = run("net.link");
    EXPECT_OUTCOME(result, Outcome::critical) << name;
    EXPECT_EQ(result.findings.at(0).message, "is not there") << name;
  }
}

TEST_F(NetLink, WithoutExpectationsOnlyWhatIsMeantToBeUsedWarns) {
  EXPECT_OUTCOME(run("net.link"), Outcome::skip);
  const std::tuple<std::string, std::string, Outcome> rows[] = {
      {"4: ACTIVE", "5: LinkUp", Outcome::pass},
      {"1: DOWN", "2: Polling", Outcome::pass},
      {"1: DOWN", "3: Disabled", Outcome::pass},
      {"2: INIT", "5: LinkUp", Outcome::warn},
      {"3: ARMED", "5: LinkUp", Outcome::warn},
      {"1: DOWN", "6: LinkErrorRecovery", Outcome::warn},
      {"1: DOWN", "4: PortConfigurationTraining", Outcome::warn},
  };
  for (const auto& [state, physical, outcome] : rows) {
    port(state, physical);
    EXPECT_OUTCOME(run("net.link"), outcome) << state << physical;
  }
}

TEST_F(NetLink, ALinkThatWasUpWarnsForADay) {
  port("4: ACTIVE", "5: LinkUp");
  interface("eth0", "1", "up");
  interface("veth0", "1", "up", "10000", false);
  const Result up = run("net.link");
  EXPECT_OUTCOME(up, Outcome::pass);
  EXPECT_EQ(up.counters.size(), 2U);
  EXPECT_EQ(up.note, "2 of 2 links up");

  port("1: DOWN", "2: Polling");
  interface("eth0", "0", "down", "-1");
  const Result down = run("net.link", up.counters, kNow_s + 3600);
  EXPECT_OUTCOME(down, Outcome::warn);
  EXPECT_EQ(down.findings.size(), 2U);
  EXPECT_EQ(down.counters.at("net.link up eth0").wall_s, kNow_s);  // kept as it was
  EXPECT_OUTCOME(run("net.link", down.counters, kNow_s + 90000), Outcome::pass);
  interface("eth0", "", "down", "-1");  // an administrator did it
  port("1: DOWN", "3: Disabled");
  EXPECT_OUTCOME(run("net.link", up.counters, kNow_s + 60), Outcome::pass);
}

TEST_F(NetFlaps, CountsOverADay) {
  EXPECT_OUTCOME(run("net.flaps"), Outcome::skip);
  policy.limits.link_flaps_per_day = 5;
  interface("eth0", "1", "up");
  put("/sys/class/net/eth0/carrier_down_count", "3");
  port("4: ACTIVE", "5: LinkUp");
  put("/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "0x10");
  const Result first = run("net.flaps");
  EXPECT_OUTCOME(first, Outcome::pass);
  EXPECT_EQ(first.counters.at("net.flaps mlx5_0/1").value, 16);

  put("/sys/class/net/eth0/carrier_down_count", "8");
  EXPECT_OUTCOME(run("net.flaps", first.counters, kNow_s + 60), Outcome::pass);  // exactly the limit
  put("/sys/class/net/eth0/carrier_down_count", "9");
  const Result flaps = run("net.flaps", first.counters, kNow_s + 60);
  EXPECT_OUTCOME(flaps, Outcome::warn);
  EXPECT_EQ(flaps.findings.at(0).entity, "eth0");
  EXPECT_EQ(flaps.findings[0].measured, 6.0);
  put("/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "40");
  EXPECT_EQ(run("net.flaps", first.counters, kNow_s + 60).findings.size(), 2U);
  put("/sys/class/net/eth0/carrier_down_count", "0");  // the driver was loaded again
  put("/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "0");
  EXPECT_OUTCOME(run("net.flaps", first.counters, kNow_s + 60), Outcome::pass);
}

TEST_F(NetFlaps, VirtualLinksOnlyWhereExpected) {
  interface("veth0", "1", "up", "10000", false);
  put("/sys/class/net/veth0/carrier_down_count", "0");
  EXPECT_OUTCOME(run("net.flaps"), Outcome::skip);
  policy.expect.links = {"veth0"};
  const Result first = run("net.flaps");
  put("/sys/class/net/veth0/carrier_down_count", "100");
  EXPECT_OUTCOME(run("net.flaps", first.counters, kNow_s + 1), Outcome::warn);
}

TEST_F(NetErrors, CountsOverAnHour) {
  EXPECT_OUTCOME(run("net.errors"), Outcome::skip);
  policy.limits.link_errors_per_hour = 100;
  const std::string counters = "/sys/class/infiniband/mlx5_0/ports/1/counters/";
  const std::string statistics = "/sys/class/net/eth0/statistics/";
  port("4: ACTIVE", "5: LinkUp");
  interface("eth0", "1", "up");
  const std::string files[] = {counters + "symbol_error",
                               counters + "link_error_recovery",
                               counters + "local_link_integrity_errors",
                               counters + "port_rcv_errors",
                               counters + "excessive_buffer_overrun_errors",
                               statistics + "rx_crc_errors",
                               statistics + "rx_errors",
                               statistics + "tx_errors"};
  for (const std::string& file : files) put(file, "7");
  put(counters + "port_xmit_wait", "7");
  const Result first = run("net.errors");
  EXPECT_OUTCOME(first, Outcome::pass);
  EXPECT_EQ(first.counters.size(), std::size(files));
  put(counters + "port_xmit_wait", "1000000");  // load, no error
  EXPECT_OUTCOME(run("net.errors", first.counters, kNow_s + 60), Outcome::pass);
  for (const std::string& file : files) {
    put(file, "107");
    EXPECT_OUTCOME(run("net.errors", first.counters, kNow_s + 60), Outcome::pass) << file;
    put(file, "108");
    const Result many = run("net.errors", first.counters, kNow_s + 60);
    EXPECT_OUTCOME(many, Outcome::warn) << file;
    EXPECT_EQ(many.findings.size(), 1U) << file;
    EXPECT_OUTCOME(run("net.errors", first.counters, kNow_s + 2 * 3600), Outcome::pass) << file;
    put(file, "7");
  }
}

TEST_F(NetErrors, UnreadableCountersArePassedOver) {
  interface("eth0", "1", "up");
  make_directory("/sys/class/net/eth0/statistics/rx_crc_errors");  // reading it fails
  put("/sys/class/net/eth0/statistics/rx_errors", "none");
  put("/sys/class/net/eth0/statistics/tx_errors", "1");
  const Result result = run("net.errors");
  EXPECT_OUTCOME(result, Outcome::pass);
  EXPECT_EQ(result.counters.size(), 1U);
}

TEST_F(Net, GrowthMovesItsWindowOnOnlyWhenItIsFull) {
  const auto grow = [&](const Counters& before, double value, double now_s, Counters& keep) {
    const Evidence evidence(policy, now_s, 0, before);
    return growth_per_window(evidence, "x", value, 100, keep);
  };
  Counters first, half, full, back, future;
  EXPECT_EQ(grow({}, 5, 1000, first), std::nullopt);
  EXPECT_EQ(grow(first, 8, 1050, half), 3.0);  // what was counted, not twice as much
  EXPECT_EQ(half.at("x").value, 5);            // the same window goes on
  EXPECT_EQ(grow(half, 25, 1200, full), 10.0);
  EXPECT_EQ(full.at("x").value, 25);
  EXPECT_EQ(full.at("x").wall_s, 1200);
  EXPECT_EQ(grow(full, 24, 1210, back), std::nullopt);  // backwards
  EXPECT_EQ(back.at("x").value, 24);
  EXPECT_EQ(grow(full, 26, 1100, future), std::nullopt);  // the clock was set back
  EXPECT_EQ(future.at("x").wall_s, 1100);
}

TEST_F(NetPcie, JudgesWidthAndSpeed) {
  struct Row {
    std::string kind, lanes, most, bridge, speed, bridge_speed;
    Outcome outcome;
  };
  const Row rows[] = {
      {"net", "16", "16", "16", "32.0", "32.0", Outcome::pass},
      {"net", "8", "16", "8", "32.0", "32.0", Outcome::pass},  // a slot of eight
      {"net", "12", "16", "16", "32.0", "32.0", Outcome::warn},
      {"net", "8", "16", "16", "32.0", "32.0", Outcome::critical},
      {"infiniband", "1", "16", "16", "32.0", "32.0", Outcome::critical},
      {"net", "16", "16", "16", "16.0", "32.0", Outcome::warn},
      {"net", "16", "16", "16", "16.0", "16.0", Outcome::pass},  // a slower slot
      {"nvme", "4", "4", "4", "8.0", "32.0", Outcome::pass},     // saves power
      {"nvme", "2", "4", "4", "32.0", "32.0", Outcome::critical},
      {"net", "0", "0", "16", "Unknown", "32.0", Outcome::skip},  // a virtual function
      {"net", "16", "255", "255", "32.0", "32.0", Outcome::skip},
  };
  for (const Row& row : rows) {
    device(row.kind, "dev0", "0000:17:00.0", row.lanes, row.most, row.bridge, row.speed + " GT/s PCIe",
           "32.0 GT/s PCIe", row.bridge_speed + " GT/s PCIe");
    const Result result = run("net.pcie");
    EXPECT_OUTCOME(result, row.outcome) << row.kind << " " << row.lanes << " of " << row.most << " at " << row.speed;
    for (const Finding& finding : result.findings) EXPECT_EQ(finding.entity, "dev0 0000:17:00.0");
  }
}

TEST_F(NetPcie, OneAdapterIsOneDevice) {
  device("net", "eth0", "0000:17:00.0", "8", "16", "16");
  link("/sys/class/infiniband/mlx5_0/device", "../../../devices/pci0000:00/0000:00:01.0/0000:17:00.0");
  EXPECT_EQ(run("net.pcie").findings.size(), 1U);
}

TEST_F(NetPcie, SkipsWithoutDevices) { EXPECT_OUTCOME(run("net.pcie"), Outcome::skip); }

}  // namespace
}  // namespace ms::health
