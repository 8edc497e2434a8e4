// A whole fake node (8 GPUs, 8 adapters) through all passive checks: healthy ones accuse nobody, whatever their
// spreads, and of broken ones exactly what was broken is named.
#include <gmock/gmock.h>

#include <functional>
#include <random>
#include <set>

#include "gpu_node.h"

namespace ms::health {
namespace {

using testing::UnorderedElementsAreArray;

constexpr double kNow_s = 1e9;

struct WholeNode : GpuNode {
  WholeNode() {
    policy.expect.hcas = 8;
    policy.expect.memory_mib = 2'000'000;
    policy.expect.cpus = 192;
    fake.write("/proc/uptime", "800000.00 0\n");
    fake.write("/proc/loadavg", "0.10 0.20 0.15 1/900 1234\n");
    memory(95);
    fake.write("/sys/devices/system/cpu/present", "0-191\n");
    fake.write("/sys/devices/system/cpu/online", "0-191\n");
    fake.write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    fake.write("/proc/mdstat", "md0 : active raid1 nvme1n1p2[1] nvme0n1p2[0]\n      100 blocks [2/2] [UU]\n");
    for (int i = 0; i < 8; ++i) {
      const std::string adapter = fmt::format("/sys/class/infiniband/mlx5_{}", i), port = adapter + "/ports/1";
      fake.write(adapter + "/board_id", "MT_0838\n");
      fake.write(adapter + "/fw_ver", "28.39.1002\n");
      const std::string address = fmt::format("0000:a{}:00.0", i), device = "/sys/bus/pci/devices/" + address;
      fake.link(adapter + "/device", "../../../bus/pci/devices/" + address);
      fake.write(device + "/current_link_width", "16\n");
      fake.write(device + "/max_link_width", "16\n");
      fake.write(port + "/state", "4: ACTIVE\n");
      fake.write(port + "/phys_state", "5: LinkUp\n");
      fake.write(port + "/rate", "400 Gb/sec (4X NDR)\n");
      fake.write(port + "/link_layer", "InfiniBand\n");
      fake.write(port + "/counters/symbol_error", "0\n");
      fake.write(port + "/counters/link_downed", "0\n");
    }
    policy.expect.links = {"mlx5_0/1", "mlx5_1/1", "mlx5_2/1", "mlx5_3/1",
                           "mlx5_4/1", "mlx5_5/1", "mlx5_6/1", "mlx5_7/1"};
  }
  // Of 2,000,000 MiB.
  void memory(double percent_free, double swap_percent = 0) {
    const double total = 2'000'000.0 * 1024;
    fake.write(
        "/proc/meminfo",
        fmt::format("MemTotal: {:.0f} kB\nMemAvailable: {:.0f} kB\nHardwareCorrupted: 0 kB\nSwapTotal: {:.0f} kB\n"
                    "SwapFree: {:.0f} kB\n",
                    total, total * percent_free / 100, total, total * (1 - swap_percent / 100)));
  }
  Gpu& gpu(std::size_t number) { return snapshot.gpus[number]; }

  // The codes of the checks that found something. disk.mounts asks the machine's own mounts.
  std::set<std::string> found(std::string_view globs = "*", const Counters& before = {}) const {
    std::set<std::string> codes;
    for (const Check& check : passive_checks()) {
      if (check.code == "disk.mounts" || !matches(globs, check.code)) continue;
      const Result result = run(check.code, before, kNow_s);
      EXPECT_NE(result.outcome, Outcome::broken) << check.code << ": " << result.note;
      if (!result.findings.empty()) codes.emplace(check.code);
      for (const Finding& finding : result.findings) said[std::string(check.code)] += finding.str() + "\n";
    }
    return codes;
  }
  mutable std::map<std::string, std::string> said;
};

struct Fault {
  std::string code;
  std::function<void(WholeNode&, std::vector<std::string>& log)> inject;
};

std::vector<Fault> faults() {
  const auto gpu = [](const char* code, void (*change)(Gpu&)) {
    return Fault{code, [change](WholeNode& node, std::vector<std::string>&) { change(node.gpu(3)); }};
  };
  const auto file = [](const char* code, const char* path, const char* text) {
    return Fault{code, [path, text](WholeNode& node, std::vector<std::string>&) { node.fake.write(path, text); }};
  };
  const auto line = [](const char* code, const char* text) {
    return Fault{code, [text](WholeNode&, std::vector<std::string>& log) { log.emplace_back(text); }};
  };
  return {
      gpu("gpu.ecc", [](Gpu& g) { g.ecc_uncorrectable = 2; }),
      gpu("gpu.remap", [](Gpu& g) { g.remap_failed = true; }),
      gpu("gpu.recovery", [](Gpu& g) { g.recovery_action = RecoveryAction::node_reboot; }),
      gpu("gpu.pcie", [](Gpu& g) { g.pcie_width = 8; }),
      gpu("gpu.nvlink", [](Gpu& g) { g.nvlinks_active = 17; }),
      gpu("gpu.thermal", [](Gpu& g) { g.clocks_event_reasons = 0x40; }),
      gpu("gpu.busy", [](Gpu& g) { g.memory_used_bytes = std::uint64_t{40} << 30; }),
      gpu("gpu.persist", [](Gpu& g) { g.persistent = false; }),
      gpu("gpu.inforom", [](Gpu& g) { g.inforom_valid = false; }),
      gpu("gpu.fabric", [](Gpu& g) { g.fabric_ready = false; }),
      gpu("gpu.mixed", [](Gpu& g) { g.power_limit_w = 400; }),
      line("gpu.xid", "NVRM: Xid (PCI:0000:13:00): 79, pid=1234, name=python, GPU has fallen off the bus."),
      line("host.mce", "[Hardware Error]: Uncorrected, software restartable error."),
      line("disk.errors",
           "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm ls: reading directory"),
      line("disk.nfs", "nfs: server fs1 not responding, still trying"),
      file("host.cpus", "/sys/devices/system/cpu/online", "0-127\n"),
      file("host.timer", "/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
      {"host.swap", [](WholeNode& node, std::vector<std::string>&) { node.memory(95, 30); }},
      file("disk.raid", "/proc/mdstat", "md0 : active raid1 nvme0n1p2[0]\n      100 blocks [2/1] [U_]\n"),
      file("net.hcas", "/sys/class/infiniband/mlx5_4/fw_ver", "28.36.1010\n"),
      file("net.link", "/sys/class/infiniband/mlx5_5/ports/1/state", "1: DOWN\n"),
      file("net.pcie", "/sys/bus/pci/devices/0000:a6:00.0/current_link_width", "8\n"),
  };
}

// Each fault alone is named by its own check and by no other one.
TEST(WholeNode, EachFaultIsNamed) {
  for (const Fault& fault : faults()) {
    WholeNode node;
    std::vector<std::string> log;
    fault.inject(node, log);
    node.log(log);
    EXPECT_EQ(node.found(), std::set<std::string>{fault.code}) << testing::PrintToString(node.said);
  }
}

TEST(WholeNode, ABadJobOfAUserIsNoFaultOfTheNode) {
  WholeNode node;
  node.log({
      "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,"
      "oom_memcg=/system.slice/slurmstepd.scope/job_191/step_0/user,task=python3,pid=8156,uid=1001",
      "Memory cgroup out of memory: Killed process 8156 (python3) total-vm:131293676kB, anon-rss:67098624kB, "
      "file-rss:90112kB, shmem-rss:0kB, UID:1001 pgtables:132000kB oom_score_adj:0",
      "python3[4711]: segfault at 7f12 ip 00007f1200000000 sp 00007ffe00000000 error 6 in "
      "libtorch_cpu.so[7f12000+1000]",
      "traps: python3[4712] trap invalid opcode ip:55d0c0 sp:7ffd00 error:0 in python3.11[400000+2b6000]",
      "NVRM: Xid (PCI:0000:13:00): 13, pid=81281, name=python3, Graphics SM Warp Exception: Out Of Range Address",
      "NVRM: Xid (PCI:0000:13:00): 31, pid=81281, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS",
      "NVRM: Xid (PCI:0000:13:00): 43, pid=81281, name=python3, Ch 00000008",
      "NVRM: Xid (PCI:0000:13:00): 45, pid=81281, name=python3, Ch 00000009",
      "perf: interrupt took too long (2503 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
      "pcieport 0000:00:01.1: AER: Multiple Correctable error message received from 0000:00:00.0",
      "mlx5_core 0000:a0:00.0: Port module event: module 0, Cable plugged",
  });
  EXPECT_EQ(node.found(), std::set<std::string>{}) << testing::PrintToString(node.said);
}

TEST(WholeNode, FortyWithSeveralFaultsAreDescribedRight) {
  std::mt19937 random(11);
  std::set<std::string> seen;
  for (int bad = 0; bad < 40; ++bad) {
    WholeNode node;
    std::vector<Fault> all = faults();
    std::shuffle(all.begin(), all.end(), random);
    all.resize(2 + static_cast<std::size_t>(bad % 4));
    std::set<std::string> expected;
    std::vector<std::string> log{"usb 1-1: new high-speed USB device number 2 using xhci_hcd"};
    for (const Fault& fault : all) {
      fault.inject(node, log);
      expected.insert(fault.code);
    }
    node.log(log);
    EXPECT_EQ(node.found(), expected) << "node " << bad << "\n" << testing::PrintToString(node.said);
    seen.insert(expected.begin(), expected.end());
  }
  EXPECT_EQ(seen.size(), faults().size()) << "some faults were never drawn";
}

// Each has what it counts and measures; counters grew a little in an hour, as on any machine. Checks of what does not
// vary run once.
TEST(WholeNode, OfAThousandHealthyOnesNobodyIsAccused) {
  std::mt19937 random(5);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  WholeNode node;
  ASSERT_EQ(node.found(), std::set<std::string>{}) << testing::PrintToString(node.said);
  for (int healthy = 0; healthy < 1000; ++healthy) {
    node.memory(between(60, 99), between(0, 2));
    node.fake.write("/proc/loadavg", fmt::format("{:.2f} 0.20 0.15 1/900 1234\n", between(0, 3)));
    Counters before;
    for (std::size_t i = 0; i < 8; ++i) {
      Gpu& gpu = node.gpu(i);
      gpu.temperature_c = between(25, 60);
      gpu.power_w = between(60, 140);
      gpu.clock_mhz = between(345, 1980);
      gpu.ecc_correctable = static_cast<std::uint64_t>(between(0, 200));
      gpu.memory_used_bytes = static_cast<std::uint64_t>(between(0, 4 << 20));
      gpu.remapped_correctable = static_cast<int>(between(0, 4));
      gpu.nvlink_errors = static_cast<std::uint64_t>(between(0, 40));
      before["gpu.nverrors " + gpu.uuid] = {0, kNow_s - 3600};
    }
    const int adapter = healthy % 8;
    node.fake.write(fmt::format("/sys/class/infiniband/mlx5_{}/ports/1/counters/symbol_error", adapter),
                    fmt::format("{:.0f}\n", between(0, 40)));
    before[fmt::format("net.errors mlx5_{}/1 counters/symbol_error", adapter)] = {0, kNow_s - 3600};
    ASSERT_EQ(node.found("gpu.*,host.memory,host.free,host.swap,host.load,net.errors", before), std::set<std::string>{})
        << "node " << healthy << "\n"
        << testing::PrintToString(node.said);
  }
}

}  // namespace
}  // namespace ms::health
