// gpu.sxid, host.pcie, host.thermal, net.mlx5, disk.nfs, disk.lustre: which of the kernel's lines count, and what does
// not, however much it looks like it.
#include "fake_node.h"

#include <set>

namespace ms::health {
namespace {

struct LogRow {
  std::string_view code;
  std::string line;
  std::string entity, words;  // empty: nothing is found
};

class LogChecks : public FakeNode {};

TEST_F(LogChecks, JudgeLines) {
  const LogRow rows[] = {
      {"gpu.sxid", "nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 42 LTSSM Fault Up", "switch 2",
       "fatal error SXid 20034 of the NVSwitch at 0000:c1:00.0 (Link 42 LTSSM Fault Up)"},
      {"gpu.sxid", "nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 4 egress", "switch 2",
       "non-fatal"},
      {"gpu.sxid", "nvidia-nvswitch2: open (major=510)", "", ""},
      {"gpu.sxid", "python[12]: SXid (PCI:0000:c1:00.0): 20034, Fatal, x", "", ""},
      {"host.pcie", "pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error message received from 0000:17:00.0",
       "0000:17:00.0", "fatal uncorrected"},
      {"host.pcie", "pcieport 0000:00:01.0: AER: Multiple Uncorrected (Non-Fatal) error received: 0000:17:00.0",
       "0000:17:00.0", "non-fatal uncorrected"},
      {"host.pcie", "pcieport 0000:00:01.0: AER: Corrected error received: 0000:17:00.0", "", ""},
      {"host.pcie", "pcieport 0000:00:01.0: pciehp: Slot(4-1): Card not present", "slot 4-1 at 0000:00:01.0", "gone"},
      {"host.pcie", "pcieport 0000:00:01.0: pciehp: Slot(4): Card present", "", ""},
      {"host.pcie", "pcieport 0000:00:03.1: DPC: containment event, status:0x1f01 source:0x0000", "0000:00:03.1",
       "DPC"},
      {"host.pcie",
       "pcieport 0000:00:03.1: DPC: containment event, status:0x1f11: unmasked uncorrectable error detected",
       "0000:00:03.1", "DPC"},
      {"host.pcie", "pcieport 0000:00:03.1: AER: device recovery failed", "0000:00:03.1", "did not recover"},
      {"host.pcie", "pcieport 0000:00:03.1: AER: device recovery successful", "", ""},
      {"host.pcie", "pcieport 0000:00:03.1: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+", "",
       ""},
      {"host.pcie", "pcieport[47]: segfault 0000:00:03.1: DPC: containment event, x", "", ""},
      {"host.pcie", "NMI: PCI system error (SERR) for reason b1 on CPU 0.", "node", "SERR"},
      {"host.pcie", "NMI: IOCK error (debug interrupt?) for reason 61 on CPU 3.", "node", "IOCK"},
      {"host.pcie", "NMI: PCI system error (SERR) for reason or other on CPU 0.", "", ""},
      {"host.thermal", "CPU3: Core temperature above threshold, cpu clock throttled (total events = 9)",
       "processor core", "throttled"},
      {"host.thermal", "mce: CPU3: Core temperature/speed normal", "", ""},
      {"net.mlx5", "mlx5_core 0000:3b:00.1: device's health compromised - reached miss count", "0000:3b:00.1",
       "health"},
      {"net.mlx5", "mlx5_core 0000:3b:00.1: print_health_info:416:(pid 0): synd 0x1: firmware internal error",
       "0000:3b:00.1", "internal error"},
      {"net.mlx5",
       "mlx5_core 0000:3b:00.1: wait_func:1137:(pid 7): ACCESS_REG(0x805) timeout. Will cause a leak of a "
       "command resource",
       "0000:3b:00.1", "did not answer"},
      {"net.mlx5",
       "mlx5_core 0000:3b:00.1: Port module event[error]: module 0, Cable error, Bad or shorted cable/module",
       "0000:3b:00.1", "cable"},
      {"net.mlx5", "mlx5_core 0000:3b:00.1: firmware version: 28.39.1002", "", ""},
      {"net.mlx5", "NETDEV WATCHDOG: ens1f0 (i40e): transmit queue 3 timed out", "ens1f0", "sent nothing"},
      {"net.mlx5", "ice 0000:3b:00.0 ens1f0: NETDEV WATCHDOG: CPU: 3: transmit queue 3 timed out 5096 ms", "ens1f0",
       "sent nothing"},
      {"net.mlx5", "NETDEV WATCHDOG[12]: segfault (i40e): transmit queue 3 timed out", "", ""},
      {"net.mlx5", "mlx5_core 0000:17:00.0: temp_warn:152:(pid 0): High temperature on sensors with bit set 0 1",
       "0000:17:00.0", "too hot"},
      {"net.mlx5", "mlx5_core 0000:17:00.0 ens1np0: TX timeout detected", "ens1np0", "sent nothing"},
      {"net.mlx5",
       "mlx5_core 0000:17:00.0: mlx5_pci_err_detected Device state = 2 health sensors: 1 pci_status: 0. Enter, pci "
       "channel state = 3",
       "0000:17:00.0", "PCI bus"},
      {"net.mlx5", "bnxt_en 0000:3b:00.0 ens1f0np0: Detected firmware fatal condition, initiating reset", "ens1f0np0",
       "fatal error"},
      {"net.mlx5", "bnxt_en 0000:3b:00.0 ens1f0np0: Error (timeout: 5000015) msg {0x23 0x4b1} len:0", "ens1f0np0",
       "did not answer"},
      {"net.mlx5", "bnxt_en 0000:3b:00.0 ens1f0np0: NIC Link is Up, 200000 Mbps full duplex", "", ""},
      {"net.mlx5", "cxi_ss1 0000:21:00.0: cxi0[hsn0]: C_EC_UNCOR_NS: C1_HNI error: llr_eopb (32)", "cxi0",
       "could not correct"},
      {"net.mlx5", "cxi_core 0000:21:00.0: cxi0[hsn0]: C_EC_CRIT: C_PI error: pbus_fatal (3)", "cxi0",
       "could not correct"},
      {"net.mlx5", "cxi_ss1 0000:21:00.0: cxi0[hsn0]: C_EC_TRNSNT_S: C1_HNI_PML error: llr_replay_at_max (20)", "", ""},
      {"host.thermal", "thermal thermal_zone0: critical temperature reached (125 C), shutting down", "thermal_zone0",
       "critical"},
      {"host.thermal", "thermal thermal_zone0: acpitz: critical temperature reached, shutting down", "thermal_zone0",
       "critical"},
      {"host.tables", "neighbour: arp_cache: neighbor table overflow!", "neighbours", "full"},
      {"host.tables", "nf_conntrack: nf_conntrack: table full, dropping packet", "connections", "full"},
      {"disk.nfs", "CIFS: VFS: \\\\filer has not responded in 180 seconds. Reconnecting...", "filer",
       "does not respond"},
      {"disk.nfs", "ceph: mds0 hung", "ceph mds0", "does not respond"},
      {"disk.nfs", "ceph: [0e1b 4711]: mds0 hung", "ceph mds0", "does not respond"},
      {"disk.nfs", "nfs: server 10.0.0.9 not responding, timed out", "10.0.0.9", "does not respond"},
      {"disk.nfs", "nfs: server x[123]: segfault at 0 not responding, still trying", "", ""},
      {"disk.lustre", "LustreError: scratch-MDT0000-mdc-ff: This client was evicted by scratch-MDT0000; in progress",
       "scratch-MDT0000", "evicted"},
      {"disk.lustre", "LustreError: 31415:0:(osc_cache.c:2290:osc_enter_cache()) LBUG", "client", "LBUG"},
      {"disk.lustre",
       "LustreError: 31415:0:(osc_cache.c:2290:osc_enter_cache()) ASSERTION( cli->x >= 0 ) failed: ", "client", "LBUG"},
      {"disk.lustre", "LustreError: 31415:0:(file.c:1:f()) cannot open LBUG", "", ""},
      {"disk.lustre", "LustreError: 11-0: scratch-OST0001-osc-ff: operation ost_connect to node failed: rc = -16", "",
       ""},
  };
  put("/sys/bus/pci/devices/0000:11:00.0/vendor", "0x10de");
  put("/sys/bus/pci/devices/0000:11:00.0/class", "0x030200");
  put("/proc/uptime", "20.00 1000.00");
  put("/proc/sys/fs/file-nr", "1\t0\t1000");
  for (const LogRow& row : rows) {
    const Result result = run_on_line(row.code, row.line);
    EXPECT_OUTCOME(result, row.entity.empty() ? Outcome::pass : Outcome::warn) << row.line;
    if (row.entity.empty()) continue;
    ASSERT_EQ(result.findings.size(), 1U) << row.line;
    EXPECT_EQ(result.findings[0].entity, row.entity);
    EXPECT_THAT(result.findings[0].message, ::testing::HasSubstr(row.words));
  }
}

TEST_F(LogChecks, ALustreServerThatCameBackIsPassedOver) {
  const auto lost = [](const std::string& target) {
    return "Lustre: " + target + "-mdc-ff88: Connection to " + target +
           " (at 10.0.47.232@tcp) was lost; in progress operations using this service will wait for recovery to "
           "complete";
  };
  log({lost("fsx-OST0001"), lost("fsx-MDT0000"), lost("old-OST0000"), lost("fsx-OST0002"),
       "Lustre: MGC10.0.0.1@tcp: Connection to MGS (at 10.0.0.1@tcp) was lost; in progress operations using this "
       "service "
       "will fail",
       "LustreError: 11-0: fsx-MDT0000-mdc-ff88: operation obd_ping to node 10.0.47.232@tcp failed: rc = -107",
       "Lustre: fsx-OST0001-mdc-ff88: Connection restored to 10.0.47.240@tcp (at 10.0.47.240@tcp)",
       "Lustre: Unmounted old-client"});
  put("/proc/fs/lustre/osc/fsx-OST0002-mdc-ff88/import", "import:\n    state: FULL");
  put("/sys/fs/lustre/health_check", "healthy");
  put("/proc/uptime", "3611.00 1000.00");
  const Result result = run("disk.lustre");
  EXPECT_OUTCOME(result, Outcome::warn);
  ASSERT_THAT(entities(result), ::testing::ElementsAre("fsx-MDT0000"));
  EXPECT_THAT(result.findings[0].message, ::testing::HasSubstr("1h"));
}

TEST_F(LogChecks, ThreeLinesOfAnNvSwitchAreOneError) {
  put("/sys/bus/pci/devices/0000:11:00.0/vendor", "0x10de");
  put("/sys/bus/pci/devices/0000:11:00.0/class", "0x030200");
  const std::string two = "nvidia-nvswitch2: SXid (PCI:0000:86:00.0): 20034, ";
  const std::string one = "nvidia-nvswitch1: SXid (PCI:0000:85:00.0): 12028, ";
  const std::string old = "nvidia-nvswitch0: SXid (PCI:0000:84:00.0): 22013, ";
  const std::string lost = "nvidia-nvswitch3: SXid (PCI:0000:87:00.0): 24001, ";
  log({lost + "Severity 1 Engine instance 01 Sub-engine instance 00", lost + "Data {0x00000001}",
       two + "Fatal, Link 42 LTSSM Fault Up", one + "Non-fatal, Link 28 egress non-posted PRIV error (First)",
       two + "Severity 1 Engine instance 42 Sub-engine instance 00", two + "Data {0x00000022, 0x00000022}",
       one + "Severity 0 Engine instance 28 Sub-engine instance 00", one + "Data {0x000001c0}",
       old + "Link 3 NVLink fault", old + "Severity 1 Engine instance 03 Sub-engine instance 00"});
  const Result result = run("gpu.sxid");
  std::set<std::string> found;
  for (const Finding& finding : result.findings)
    found.insert(finding.entity + " " + finding.message.substr(0, finding.message.find(' ')) + " " +
                 fmt::format("{}", *finding.measured));
  EXPECT_THAT(found, ::testing::ElementsAre("switch 0 fatal 1", "switch 1 non-fatal 1", "switch 2 fatal 1",
                                            "switch 3 fatal 1"));
}

TEST_F(LogChecks, XidsOfNvlink5AreJudgedByTheirSeverityAndSubcode) {
  struct Row {
    std::string text;
    Outcome outcome;
    std::string words;
  };
  const Row rows[] = {
      {"145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000)", Outcome::pass, ""},
      {"144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008)", Outcome::pass, ""},
      {"145, RLW_REMAP  Fatal   XC0 i0 Link 07 (0x00000004 0x00000040)", Outcome::critical,
       "fatal NVLink error of link 7"},
      {"149, NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x000005c6 0x00000000)", Outcome::critical, "link 3"},
      {"149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000)", Outcome::critical, "subcode 4"},
      {"149, NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x025001c6 0x00000000)", Outcome::warn, "subcode 37"},
      {"149, NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x026001c6 0x00000000)", Outcome::warn, "subcode 38"},
      {"149, NETIR_LINK_EVT Fatal XC 1 i 0 Link 01 [0x0000000a]", Outcome::critical, "link 1"},
      {"149, pid='<unknown>', name=<unknown>, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x004505c6 0x00000000)",
       Outcome::critical, "subcode 4"},
      {"145, pid=4711, name=python3, RLW_CTRL Fatal XC0 i0 Link 03 (0x00000001 0x00000008)", Outcome::critical,
       "link 3"},
      {"145, pid=7, name=A Fatal XC0 i0, RLW_CTRL Nonfatal XC0 i0 Link 03 (0x1 0x8)", Outcome::pass, ""},
      {"149, NETIR_LINK_EVT Fatal XC0 i1 Link 01 (0x000005c6 0x00000000)", Outcome::warn, "injected"},
      {"149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x016415c6 0x00000000)", Outcome::warn, "subcode 22"},
      {"149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x010415c6 0x00000000)", Outcome::critical, "subcode 16"},
      {"145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000086 0x00000004)", Outcome::warn, "promoted"},
      {"145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000006 0x00000004)", Outcome::pass, ""},
      {"145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000086 0x00000008)", Outcome::pass, ""},
      {"145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x000004c2 0x00000001)", Outcome::warn, "promoted"},
      {"150, MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x00000000 0x00000000)", Outcome::critical, "error (MSE_WATCHDOG)"},
      {"149, pid=12, name=x Nonfatal", Outcome::warn, "NVLink error"},
      {"45, pid=81281, name=python3, Ch 00000001 caused by previous Xid 149", Outcome::pass, ""},
  };
  for (const Row& row : rows) {
    const Result result = run_on_line("gpu.xid", "NVRM: Xid (PCI:0000:11:00): " + row.text);
    EXPECT_OUTCOME(result, row.outcome) << row.text;
    if (row.outcome == Outcome::pass) continue;
    EXPECT_THAT(result.findings.at(0).message, ::testing::HasSubstr(row.words));
  }
}

// The kernel does not log that the server of a soft mount, or of SMB, answers again.
TEST_F(LogChecks, ASoftMountsTimeoutCountsForAnHour) {
  put("/proc/uptime", "100000.00 1000.00");
  for (const std::string line : {"nfs: server filer not responding, timed out",
                                 "CIFS: VFS: \\\\filer has not responded in 180 seconds. Reconnecting..."}) {
    log({line}, 100000 - 3610);
    EXPECT_OUTCOME(run("disk.nfs"), Outcome::pass) << line;
    log({line}, 100000 - 3590);
    EXPECT_OUTCOME(run("disk.nfs"), Outcome::warn) << line;
  }
  log({"nfs: server filer not responding, still trying"}, 100000 - 90000);
  EXPECT_OUTCOME(run("disk.nfs"), Outcome::warn);
  log({"ceph: mds0 hung", "ceph: mds0 came back"}, 99000);
  EXPECT_OUTCOME(run("disk.nfs"), Outcome::pass);
}

TEST_F(LogChecks, AnNfsServerThatAnsweredAgainIsPassedOver) {
  log({"nfs: server fs1 not responding, still trying", "nfs: server fs2 not responding, still trying",
       "nfs: server fs1 OK"});
  EXPECT_THAT(entities(run("disk.nfs")), ::testing::ElementsAre("fs2"));
}

TEST_F(LogChecks, ThrottlingIsCountedBetweenRuns) {
  log({});
  put("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "7");
  const Result first = run("host.thermal");
  EXPECT_OUTCOME(first, Outcome::pass);
  put("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "70");
  EXPECT_OUTCOME(run("host.thermal", first.counters, kNow_s + 3600), Outcome::warn);
}

TEST_F(LogChecks, WithoutALogTheySkip) {
  put("/sys/bus/pci/devices/0000:11:00.0/vendor", "0x10de");
  put("/sys/bus/pci/devices/0000:11:00.0/class", "0x030200");
  for (const std::string_view code : {"gpu.sxid", "host.pcie", "host.thermal", "net.mlx5", "disk.nfs", "disk.lustre"})
    EXPECT_OUTCOME(run(code), Outcome::skip) << code;
}

}  // namespace
}  // namespace ms::health
