// The checks of GPUs: every one passes on a healthy node, fails when the one thing is wrong that it looks for, and is
// skipped where it has nothing to look at. GPUs are filled in by hand, the rest is a fake root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "gpu_node.h"
#include "health/checks/registry.h"

namespace ms::health {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- all of them

std::vector<Check> gpu_checks() {
  std::vector<Check> checks = passive_checks();
  std::erase_if(checks, [](const Check& check) { return !check.code.starts_with("gpu."); });
  return checks;
}

TEST(GpuChecks, AllPassOnAHealthyNode) {
  const GpuNode node;
  for (const Check& check : gpu_checks()) {
    const Result result = node.run(check.code);
    EXPECT_EQ(result.outcome, Outcome::pass) << check.code << ": " << result.note;
    EXPECT_THAT(result.findings, IsEmpty()) << check.code;
  }
}

TEST(GpuChecks, AllAreSkippedWithoutGpus) {
  GpuNode node(0);
  node.no_driver("there is no /usr/lib/libnvidia-ml.so.1", false);
  for (const Check& check : gpu_checks()) {
    const Result result = node.run(check.code);
    EXPECT_EQ(result.outcome, Outcome::skip) << check.code;
    EXPECT_THAT(result.note, HasSubstr("no NVIDIA GPU")) << check.code;
  }
}

// A library in another place says nothing of the GPUs: jobs may use them, unless the site says that there are some.
TEST(GpuChecks, AMissingLibraryBesideALoadedDriverIsAWarning) {
  for (int bits = 0; bits < 8; ++bits) {
    const bool loaded = (bits & 1) != 0, found = (bits & 2) != 0, configured = (bits & 4) != 0;
    const bool unknown = loaded && !found && !configured;
    GpuNode node;
    if (loaded) node.fake.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64  580.159.04\n");
    if (configured) node.policy.expect.gpus = 8;
    node.no_driver("no answer", found);
    const Finding finding = node.run("gpu.driver").findings.at(0);
    EXPECT_EQ(finding.severity, unknown ? Severity::warning : Severity::critical) << bits;
    EXPECT_EQ(finding.message.find("may be elsewhere") != std::string::npos, unknown) << bits;
  }
}

TEST(GpuChecks, SilentGpusAreNotJudged) {
  GpuNode node;
  for (int index = 0; index < 8; ++index) node.snapshot.gpus[static_cast<std::size_t>(index)] = silent_gpu(index);
  for (const Check& check : gpu_checks()) { EXPECT_THAT(node.run(check.code).findings, IsEmpty()) << check.code; }
  EXPECT_EQ(node.run("gpu.ecc").outcome, Outcome::skip);
  EXPECT_EQ(node.run("gpu.ecc").note, "no GPU tells its ECC errors");
}

// Findings of single GPUs: what is changed on GPU 3 of a healthy node, and what comes out.
struct Injection {
  const char* what;
  std::string_view code;
  void (*change)(Gpu&);
  Outcome outcome;
  const char* message;
  std::optional<double> measured = {};
  std::optional<double> limit = {};
};

TEST(GpuChecks, OneBadGpu) {
  using enum Outcome;
  const Injection rows[] = {
      {"lost", "gpu.lost", [](Gpu& g) { g = silent_gpu(3), g.lost = true; }, critical, "fallen off the bus"},
      {"no power", "gpu.lost", [](Gpu& g) { g = silent_gpu(3), g.error = "Insufficient External Power"; }, critical,
       "does not answer: Insufficient External Power"},
      {"one uncorrectable", "gpu.ecc", [](Gpu& g) { g.ecc_uncorrectable = 1; }, critical,
       "1 uncorrectable memory error since", 1, 0},
      {"corrected above the limit", "gpu.ecc", [](Gpu& g) { g.ecc_correctable = 10001; }, warn,
       "10001 corrected memory errors", 10001, 10000},
      {"corrected at the limit", "gpu.ecc", [](Gpu& g) { g.ecc_correctable = 10000; }, pass, ""},
      {"remap failed", "gpu.remap", [](Gpu& g) { g.remap_failed = true; }, critical, "could not be remapped"},
      {"remap pending", "gpu.remap", [](Gpu& g) { g.remap_pending = true; }, warn, "waits to be remapped"},
      {"rows remapped long ago", "gpu.remap", [](Gpu& g) { g.remapped_uncorrectable = 5; }, pass, ""},
      {"page pending", "gpu.remap", [](Gpu& g) { g.retired_pages_pending = 1; }, warn, "waits to be retired"},
      {"driver unloads", "gpu.persist", [](Gpu& g) { g.persistent = false; }, warn, "persistence mode is off"},
      {"corrupt InfoROM", "gpu.inforom", [](Gpu& g) { g.inforom_valid = false; }, warn, "its InfoROM is corrupt"},
      {"no fabric", "gpu.fabric", [](Gpu& g) { g.fabric_ready = false; }, warn, "has not joined the fabric"},
      {"capped", "gpu.mixed", [](Gpu& g) { g.power_limit_w = 300; }, warn,
       "its power limit is 300 W, that of the others 700 W"},
      {"slower", "gpu.mixed", [](Gpu& g) { g.clock_max_mhz = 1200; }, warn, "highest clock is 1200 MHz"},
      {"other VBIOS", "gpu.mixed", [](Gpu& g) { g.vbios = "1"; }, warn, "VBIOS is 1, that"},
      {"reset", "gpu.recovery", [](Gpu& g) { g.recovery_action = RecoveryAction::gpu_reset; }, critical,
       "a reset of the GPU"},
      {"reboot", "gpu.recovery", [](Gpu& g) { g.recovery_action = RecoveryAction::node_reboot; }, critical, "a reboot"},
      {"drain and reset", "gpu.recovery", [](Gpu& g) { g.recovery_action = RecoveryAction::drain_and_reset; }, critical,
       "then a reset"},
      {"drain p2p", "gpu.recovery", [](Gpu& g) { g.recovery_action = RecoveryAction::drain_p2p; }, warn,
       "peer-to-peer"},
      {"unknown action", "gpu.recovery", [](Gpu& g) { g.recovery_action = static_cast<RecoveryAction>(5); }, warn,
       "not known"},
      {"half the lanes", "gpu.pcie", [](Gpu& g) { g.pcie_width = 8; }, critical, "8 of 16 lanes", 8, 16},
      {"more than half", "gpu.pcie", [](Gpu& g) { g.pcie_width = 12; }, warn, "12 of 16 lanes", 12, 16},
      {"a small slot", "gpu.pcie", [](Gpu& g) { g.pcie_width = g.pcie_width_max = 8; }, pass, ""},
      {"an NVLink down", "gpu.nvlink", [](Gpu& g) { g.nvlinks_active = 17; }, critical, "17 of 18 NVLinks", 17, 18},
      {"all NVLinks down", "gpu.nvlink", [](Gpu& g) { g.nvlinks_active = 0; }, critical, "0 of 18 NVLinks", 0, 18},
      {"hot", "gpu.thermal", [](Gpu& g) { g.clocks_event_reasons = 0x48, g.temperature_c = 95; }, warn,
       "slowed down: it is too hot", 95},
      {"power brake", "gpu.thermal", [](Gpu& g) { g.clocks_event_reasons = 0x88; }, warn, "power brake", 34},
      {"slowdown alone", "gpu.thermal", [](Gpu& g) { g.clocks_event_reasons = 0x8; }, warn, "protects itself", 34},
      {"power cap, set clocks", "gpu.thermal", [](Gpu& g) { g.clocks_event_reasons = 0x1 | 0x2 | 0x4 | 0x20; }, pass,
       ""},
      {"memory in use", "gpu.busy", [](Gpu& g) { g.memory_used_bytes = (std::uint64_t{1} << 30) + (1 << 20); }, warn,
       "1.0 GiB of its memory are in use, and the driver names no process", 1025, 1024},
      {"a little memory in use", "gpu.busy", [](Gpu& g) { g.memory_used_bytes = std::uint64_t{1} << 30; }, pass, ""},
  };
  for (const Injection& row : rows) {
    GpuNode node;
    row.change(node.snapshot.gpus[3]);
    const Result result = node.run(row.code);
    EXPECT_EQ(result.outcome, row.outcome) << row.what;
    if (row.outcome == pass) {
      EXPECT_THAT(result.findings, IsEmpty()) << row.what;
      continue;
    }
    ASSERT_THAT(entities(result), ElementsAre("gpu 3")) << row.what;
    EXPECT_THAT(result.findings[0].message, HasSubstr(row.message)) << row.what;
    EXPECT_EQ(result.findings[0].measured, row.measured) << row.what;
    EXPECT_EQ(result.findings[0].limit, row.limit) << row.what;
    EXPECT_EQ(result.findings[0].unit.empty(), !row.measured) << row.what;
  }
}

// The finding says which GPU differs in what, and how to fix that; without a majority, that nobody can know.
TEST(GpuMixed, SaysWhichDiffersAndWhatToDo) {
  GpuNode node(4);
  node.snapshot.gpus[1].power_limit_w = 500;
  node.snapshot.gpus[2].memory_total_bytes = std::uint64_t{40} << 30;
  const Result result = node.run("gpu.mixed");
  ASSERT_THAT(entities(result), ElementsAre("gpu 2", "gpu 1"));
  EXPECT_EQ(result.findings[0].message, "its memory is 40.0 GiB, that of the others 80.0 GiB");
  EXPECT_THAT(result.findings[0].remedy, HasSubstr("replaced"));
  EXPECT_THAT(result.findings[1].remedy, HasSubstr("nvidia-smi -i 1 -pl 700 "));
  node.snapshot.gpus[3].power_limit_w = 500;
  const Result even = node.run("gpu.mixed");
  ASSERT_THAT(entities(even), ElementsAre("gpu 2", "gpus"));
  EXPECT_THAT(even.findings[1].message, HasSubstr("gpu 1, 3 have 500 W; gpu 0, 2 have 700 W; no majority"));
  EXPECT_THAT(even.findings[1].remedy, HasSubstr("nvidia-smi -i N -pl VALUE "));
}

TEST(GpuBusy, NamesTheProcessAndItsUser) {
  GpuNode node(2);
  node.snapshot.gpus[1].memory_used_bytes = std::uint64_t{40} << 30;
  node.snapshot.gpus[1].processes = {77, 78};
  node.fake.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1234:100::/:/bin/sh\n");
  node.fake.write("/proc/uptime", "8000.00 1.0\n");
  node.fake.write("/proc/77/status", "Uid:\t1234\t1234\t1234\t1234\nVmRSS:\t   2000 kB\n");
  node.fake.write("/proc/77/stat",
                  fmt::format("77 (py (x) thon) S 1 1 1 0 -1 4194304 1 2 3 4 0 0 0 0 20 0 1 0 {} 1 1\n",
                              800 * ::sysconf(_SC_CLK_TCK)));
  const Result result = node.run("gpu.busy");
  EXPECT_EQ(result.findings.at(0).message,
            "40.0 GiB of its memory are in use by process 77, py (x) thon of user alice (uid 1234, started "
            "2h00m ago); process 78");
}

TEST(GpuChecks, TheWorstOfSeveralCounts) {
  GpuNode node;
  node.snapshot.gpus[1].ecc_correctable = 20000;
  node.snapshot.gpus[2].ecc_uncorrectable = 4;
  const Result result = node.run("gpu.ecc");
  EXPECT_EQ(result.outcome, Outcome::critical);
  EXPECT_THAT(entities(result), ElementsAre("gpu 1", "gpu 2"));
}

TEST(GpuNverrors, GrowthInAnHourIsSeen) {
  GpuNode node;
  node.snapshot.gpus[3].nvlink_errors = 500;
  const Result first = node.run("gpu.nverrors");
  EXPECT_EQ(first.outcome, Outcome::pass);
  EXPECT_EQ(first.counters.size(), 8u);
  node.snapshot.gpus[3].nvlink_errors = 700;
  const Result second = node.run("gpu.nverrors", first.counters, 1e9 + 3600);
  ASSERT_EQ(second.findings.size(), 1u);
  EXPECT_EQ(second.findings[0].entity, "gpu 3");
  EXPECT_EQ(second.findings[0].measured, 200);
  EXPECT_EQ(second.outcome, Outcome::warn);
}

TEST(GpuLost, ADeniedOneIsNotLost) {
  GpuNode node;
  node.snapshot.gpus[3] = silent_gpu(3);
  node.snapshot.gpus[3].error = "Insufficient Permissions";
  node.snapshot.gpus[3].denied = true;
  EXPECT_EQ(node.run("gpu.lost").outcome, Outcome::pass);
}

// ---- gpu.driver and gpu.count

TEST(GpuDriver, NoAnswerAlthoughThereAreGpus) {
  GpuNode node;
  node.no_driver("nvmlInit_v2: Driver Not Loaded (error 9)");
  const Result result = node.run("gpu.driver");
  EXPECT_EQ(result.outcome, Outcome::critical);
  ASSERT_THAT(entities(result), ElementsAre("driver"));
  EXPECT_EQ(result.findings[0].message, "no answer about 8 GPUs: nvmlInit_v2: Driver Not Loaded (error 9)");
  node.policy.expect.gpus = 0;
  EXPECT_EQ(node.run("gpu.driver").outcome, Outcome::skip) << "the site does not use them";
}

TEST(GpuDriver, NoLibrary) {
  GpuNode node;
  node.no_driver("there is no /lib/x.so", false);
  EXPECT_EQ(node.run("gpu.driver").outcome, Outcome::critical);
  EXPECT_EQ(node.run("gpu.count").outcome, Outcome::skip) << "a wrong path in the policy must drain nothing";
  GpuNode bare(0);  // made-up devices in gres.conf, as on a test cluster
  bare.no_driver("there is no /lib/x.so", false);
  bare.fake.write("/etc/slurm/gres.conf", "Name=gpu File=/dev/nvidia[0-7]\n");
  EXPECT_EQ(bare.run("gpu.driver").outcome, Outcome::skip);
  EXPECT_EQ(bare.run("gpu.count").outcome, Outcome::skip);
}

TEST(GpuDriver, ExpectedGpusWithoutADriver) {
  GpuNode node(0);
  node.no_driver("nvmlInit_v2: Driver Not Loaded (error 9)");
  node.policy.expect.gpus = 4;
  EXPECT_EQ(node.run("gpu.driver").outcome, Outcome::critical);
  EXPECT_EQ(node.run("gpu.lost").outcome, Outcome::skip);
  EXPECT_THAT(node.run("gpu.lost").note, HasSubstr("gpu.driver"));
}

TEST(GpuCount, OneIsMissing) {
  struct Row {
    const char* what;
    void (*change)(GpuNode&);
    Outcome outcome;
    const char* message;
  };
  using enum Outcome;
  const Row rows[] = {
      {"on the bus, not named", [](GpuNode& n) { n.snapshot.gpus.pop_back(); }, critical,
       "7 of 8 GPUs (by the PCI bus)"},
      {"more than expected", [](GpuNode& n) { n.policy.expect.gpus = 4; }, pass, ""},
      {"gone from the bus too, gres.conf knows",
       [](GpuNode& n) {
         n.snapshot.gpus.pop_back();
         std::filesystem::remove_all(n.fake.directory() + "/sys/bus/pci/devices/0000:17:00.0");
         n.fake.write("/etc/slurm/gres.conf", "Name=gpu Type=h100 File=/dev/nvidia[0-7]\n");
       },
       critical, "7 of 8 GPUs (by gres.conf)"},
      {"the policy goes before gres.conf",
       [](GpuNode& n) {
         n.fake.write("/etc/slurm/gres.conf", "Name=gpu File=/dev/nvidia[0-3]\n");
         n.policy.expect.gpus = 10;
       },
       critical, "8 of 10 GPUs (by expect.gpus)"},
      {"gres.conf goes before the bus",
       [](GpuNode& n) {
         n.fake.write("/etc/slurm/gres.conf", "Name=gpu File=/dev/nvidia[0-3]\n"), n.snapshot.gpus.resize(4);
       },
       pass, ""},
      {"lines beside AutoDetect bound nothing",
       [](GpuNode& n) {
         n.fake.write("/etc/slurm/gres.conf", "AutoDetect=nvml\nName=gpu File=/dev/nvidia0\n");
         n.snapshot.gpus.resize(4);
       },
       critical, "4 of 8 GPUs (by the PCI bus)"},
      {"but count where they list more",
       [](GpuNode& n) { n.fake.write("/etc/slurm/gres.conf", "AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-8]\n"); },
       critical, "8 of 9 GPUs (by gres.conf)"},
      {"gres.conf of another node",
       [](GpuNode& n) {
         n.fake.write("/etc/slurm/gres.conf", "NodeName=node[03-09] Name=gpu File=/dev/nvidia[0-15]\n");
       },
       pass, ""},
      {"gres.conf of other devices",
       [](GpuNode& n) {
         n.fake.write("/etc/slurm/gres.conf",
                      "Name=gpu File=/dev/dri/renderD[128-150]\nName=nic File=/dev/nvidia[0-20]\n");
       },
       pass, ""},
      {"the driver refuses", [](GpuNode& n) { n.no_driver("nvmlInit_v2: mismatch"); }, critical,
       "0 of 8 GPUs (by the PCI bus) answer: nvmlInit_v2: mismatch"},
      {"a lost one is named", [](GpuNode& n) { n.snapshot.gpus[3].lost = true; }, pass, ""},
      {"a gres_conf that is no absolute path", [](GpuNode& n) { n.policy.paths.gres_conf = "gres.conf"; }, pass, ""},
  };
  for (const Row& row : rows) {
    GpuNode node;
    row.change(node);
    const Result result = node.run("gpu.count");
    ASSERT_EQ(result.outcome, row.outcome) << row.what << ": " << result.note;
    if (row.outcome != critical) continue;
    EXPECT_THAT(result.findings[0].message, HasSubstr(row.message)) << row.what;
  }
}

TEST(GpuCount, AnExcludedGpuIsNotExpected) {
  GpuNode node;
  node.snapshot.gpus.pop_back();
  EXPECT_EQ(node.run("gpu.count").outcome, Outcome::critical);
  const std::string information = "/proc/driver/nvidia/gpus/0000:17:00.0/information";
  node.fake.write(information, "Model: \t\t NVIDIA H100\nDevice Minor: \t 7\nGPU Excluded:\t No\n");
  EXPECT_EQ(node.run("gpu.count").outcome, Outcome::critical);
  node.fake.write(information, "Model: \t\t NVIDIA H100\nDevice Minor: \t 7\nGPU Excluded:\t Yes\n");
  EXPECT_EQ(node.run("gpu.count").outcome, Outcome::pass);
}

TEST(GpuCount, OnlyTheDriversOwnDisplayControllers) {
  GpuNode node;
  node.plug("0000:a0:00.0", "0x030200\n", "vfio-pci");         // given to a virtual machine
  node.plug("0000:a1:00.0", "0x030000\n", "ast", "0x1a03\n");  // the board's own graphics
  node.plug("0000:a2:00.0", "0x068000\n", "nvidia-nvswitch");  // a switch
  node.plug("0000:a3:00.0", "0x040300\n", "snd_hda_intel");    // the sound of a graphics card
  node.plug("0000:a4:00.0", "0x030200\n", "nvidia");           // a virtual function
  node.fake.link("/sys/bus/pci/devices/0000:a4:00.0/physfn", "../0000:10:00.0");
  EXPECT_EQ(node.run("gpu.count").outcome, Outcome::pass);
  node.plug("0000:a5:00.0", "0x030000\n", "");  // the driver did not take it
  EXPECT_EQ(node.run("gpu.count").outcome, Outcome::critical);
}

// ---- gpu.nvlink beyond one GPU

TEST(GpuNvlink, BoardsWithoutOrWithSomeLinks) {
  GpuNode node;
  for (Gpu& gpu : node.snapshot.gpus) gpu.nvlinks_active = 0;
  EXPECT_EQ(node.run("gpu.nvlink").outcome, Outcome::skip) << "perhaps there is no bridge";
  node.policy.expect.nvlinks_per_gpu = 18;
  EXPECT_EQ(node.run("gpu.nvlink").outcome, Outcome::critical);
  EXPECT_EQ(node.run("gpu.nvlink").findings.size(), 8u);
  for (Gpu& gpu : node.snapshot.gpus) gpu.nvlinks_active = 12;
  node.policy.expect.nvlinks_per_gpu = 12;
  EXPECT_EQ(node.run("gpu.nvlink").outcome, Outcome::pass);
  node.policy.expect.nvlinks_per_gpu = -1;
  EXPECT_EQ(node.run("gpu.nvlink").outcome, Outcome::warn) << "all alike";
  node.snapshot.gpus[5].nvlinks_active = 8;
  EXPECT_EQ(node.run("gpu.nvlink").outcome, Outcome::critical) << "fewer than the others";
}

}  // namespace
}  // namespace ms::health
