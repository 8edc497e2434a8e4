// gpu.sxid, host.pcie, host.thermal, net.mlx5, disk.nfs, disk.lustre: which of the kernel's lines count, and what does
// not, however much it looks like it.
#include "fake_node.h"

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
      {"disk.nfs", "nfs: server 10.0.0.9 not responding, timed out", "10.0.0.9", "does not respond"},
      {"disk.nfs", "nfs: server x[123]: segfault at 0 not responding, still trying", "", ""},
      {"disk.lustre", "LustreError: scratch-MDT0000-mdc-ff: This client was evicted by scratch-MDT0000; in progress",
       "scratch-MDT0000", "evicted"},
      {"disk.lustre", "LustreError: 11-0: scratch-OST0001-osc-ff: operation ost_connect to node failed: rc = -16", "",
       ""},
  };
  put("/sys/bus/pci/devices/0000:11:00.0/vendor", "0x10de");
  put("/sys/bus/pci/devices/0000:11:00.0/class", "0x030200");
  for (const LogRow& row : rows) {
    const Result result = run_on_line(row.code, row.line);
    EXPECT_OUTCOME(result, row.entity.empty() ? Outcome::pass : Outcome::warn) << row.line;
    if (row.entity.empty()) continue;
    ASSERT_EQ(result.findings.size(), 1U) << row.line;
    EXPECT_EQ(result.findings[0].entity, row.entity);
    EXPECT_THAT(result.findings[0].message, ::testing::HasSubstr(row.words));
  }
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
