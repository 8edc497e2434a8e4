// The parts of active checks that are no hardware: patterns, disks, heat, limits of models, and what perftest prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "../base/fake_root.h"
#include "base/error.h"
#include "diag/disk.h"
#include "diag/heat.h"
#include "diag/limits.h"
#include "diag/memory_patterns.h"
#include "diag/rates.h"
#include "diag/rdma.h"
#include "health/evidence/nvml.h"
#include "support/fork.h"

namespace ms::diag {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// ---- memory

TEST(MemoryPatterns, SoundMemoryKeepsThemAll) {
  std::vector<std::uint64_t> memory(4096);
  const MemorySoak soak = soak_words(memory, 1, [](std::span<std::uint64_t>) {});
  EXPECT_EQ(soak.passes, 1);
  EXPECT_EQ(soak.words, 6 * 4096);
  EXPECT_EQ(soak.num_wrong, 0);
}

TEST(MemoryPatterns, OneFlippedBitIsFound) {
  std::vector<std::uint64_t> memory(4096);
  int times = 0;
  const MemorySoak soak = soak_words(memory, 1, [&](std::span<std::uint64_t> words) {
    if (++times == 4) words[1234] ^= std::uint64_t{1} << 37;
  });
  EXPECT_EQ(soak.num_wrong, 1);
  EXPECT_EQ(soak.flipped, std::uint64_t{1} << 37);
}

// A bit that is stuck, whichever way, is wrong in some pattern.
TEST(MemoryPatterns, StuckBitsAreFound) {
  for (int bit = 0; bit < 64; ++bit) {
    for (const bool high : {false, true}) {
      std::vector<std::uint64_t> memory(64);
      const std::uint64_t mask = std::uint64_t{1} << bit;
      const MemorySoak soak = soak_words(memory, 7, [&](std::span<std::uint64_t> words) {
        if (high) words[9] |= mask;
        if (!high) words[9] &= ~mask;
      });
      EXPECT_GT(soak.num_wrong, 0) << bit << high;
      EXPECT_EQ(soak.flipped, mask);
    }
  }
}

// ---- disk

constexpr DiskPlan kSmallDisk{.most_bytes = 8 << 20, .seconds = 30, .fsync_s = 0.02, .threads = 2};

TEST(Disk, IsMeasuredAndNothingStays) {
  const test::TempDir directory;
  const DiskSpeed speed = measure_disk(directory.path(), kSmallDisk);
  EXPECT_EQ(speed.bytes, 8 << 20);
  EXPECT_EQ(speed.num_wrong, 0);
  EXPECT_GT(speed.write_gbps, 0);
  EXPECT_GT(speed.read_gbps, 0);
  EXPECT_FALSE(speed.fsync_s.empty());
  EXPECT_THAT(directory.list(), IsEmpty());
}

TEST(Disk, ADirectoryThatCannotBeWrittenIsSaid) {
  try {
    measure_disk("/nowhere", kSmallDisk);
    FAIL();
  } catch (const Error& error) { EXPECT_THAT(error.message(), HasSubstr("cannot write in /nowhere")); }
}

TEST(Disk, NothingStaysOfOneThatIsKilled) {
  const test::TempDir directory;
  const pid_t child = test::fork_or_throw();
  if (child == 0) {
    measure_disk(directory.path(), {.most_bytes = 8 << 20, .seconds = 30, .fsync_s = 600, .threads = 1});
    ::_exit(0);
  }
  for (int tries = 0; tries < 6000; ++tries) {  // until the file is open
    bool open = false;
    for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", child))) {
      std::error_code gone;
      open = open || std::filesystem::read_symlink(entry.path(), gone).string().starts_with(directory.path());
    }
    if (open) break;
    ::usleep(10'000);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_THAT(directory.list(), IsEmpty());
}

// ---- heat

TEST(Heat, OfCoresIsWhatTheKernelCounted) {
  FakeRoot fake;
  const std::string core1 = "/sys/devices/system/cpu/cpu1/thermal_throttle/";
  fake.write(core1 + "core_throttle_count", "7\n");
  fake.write(core1 + "package_throttle_count", "2\n");
  const CpuHeat before = cpu_heat(fake.root(), {0, 1});
  EXPECT_THAT(judge_heat(before, cpu_heat(fake.root(), {0, 1})), IsEmpty());
  fake.write(core1 + "core_throttle_count", "12\n");
  const std::vector<Finding> findings = judge_heat(before, cpu_heat(fake.root(), {0, 1}));
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].entity, "core 1");
  EXPECT_THAT(findings[0].message, HasSubstr("throttled for heat 5 times"));
}

health::GpuSnapshot gpus(double clock3, std::uint64_t reasons = 1) {
  health::GpuSnapshot snapshot;
  for (int i = 0; i < 4; ++i) {
    health::Gpu gpu;
    gpu.index = i;
    gpu.clock_mhz = i == 3 ? clock3 : 1900 + i;
    gpu.clocks_event_reasons = i == 2 ? reasons : 1;
    gpu.temperature_c = 70 + i;
    gpu.power_w = 690;
    snapshot.gpus.push_back(gpu);
  }
  return snapshot;
}

TEST(Heat, OfGpusIsTheWorstOfAllLooks) {
  GpuHeats heats;
  heats.look(gpus(1890));
  heats.look(gpus(1880));
  EXPECT_THAT(judge_heat(heats.all()), IsEmpty());
  heats.look(gpus(1500));
  heats.look(gpus(1890, health::nvml::kHwThermalSlowdown));
  const std::vector<Finding> findings = judge_heat(heats.all());
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].entity, "gpu 2");
  EXPECT_THAT(findings[0].message, HasSubstr("slowed down under load by heat"));
  EXPECT_EQ(findings[1].entity, "gpu 3");
  EXPECT_THAT(findings[1].message, HasSubstr("whose median is 1901 MHz, 1500 MHz at least"));
}

// ---- limits

TEST(Limits, TheLongestNameCounts) {
  EXPECT_DOUBLE_EQ(known_limit("NVIDIA H100 80GB HBM3", "gpu_h2d_gbps").least, 52);
  EXPECT_DOUBLE_EQ(known_limit("NVIDIA A100-SXM4-80GB", "gpu_memory_gbps").least, 1173);
  EXPECT_LT(known_limit("NVIDIA H100 80GB HBM3", "nothing").least, 0);
  EXPECT_LT(known_limit("emulated GPU", "gpu_h2d_gbps").least, 0);
  for (const KnownLimit& limit : known_limits()) {
    EXPECT_GT(limit.least, 0) << limit.model;
    EXPECT_GT(limit.source.size(), 10U) << limit.model;
  }
}

TEST(Limits, JudgeWhereThePolicyIsSilent) {
  const Share share;
  const KnownLimit known{"H100", "x", 50, "a data sheet"};
  const auto outcome = [&](double measured, double expected) {
    return judge_rates({{"gpu 0", measured, expected, "GB/s", known}}, 0.75, share, Scope::whole, "how");
  };
  EXPECT_EQ(outcome(51, -1).outcome, health::Outcome::pass);
  EXPECT_EQ(outcome(10, -1).outcome, health::Outcome::warn);
  EXPECT_THAT(outcome(10, -1).findings[0].message, HasSubstr("a healthy H100 reaches at least 50 (a data sheet"));
  EXPECT_EQ(outcome(40, 45).outcome, health::Outcome::pass);  // the policy knows better
  EXPECT_EQ(outcome(10, 45).outcome, health::Outcome::critical);
}

// ---- RDMA

// As ib_write_bw prints it.
constexpr const char* kTable =
    R"(---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_0
 Mtu             : 4096[B]
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      4159603          0.00               363.47             0.693268
---------------------------------------------------------------------------------------
)";

TEST(Rdma, TheAverageIsRead) {
  EXPECT_EQ(bandwidth_in(kTable), 363.47);
  EXPECT_FALSE(bandwidth_in("Unable to init the socket connection\n 1 2 3\n"));
  EXPECT_FALSE(bandwidth_in(""));
}

class RdmaNode : public ::testing::Test {
 protected:
  RdmaNode() {
    for (const std::string name : {"mlx5_0", "mlx5_1", "mlx5_2"}) {
      const std::string at = "/sys/class/infiniband/" + name;
      fake_.write(at + "/hca_type", "MT4129\n");
      fake_.write(at + "/ports/1/state", name == "mlx5_2" ? "1: DOWN\n" : "4: ACTIVE\n");
      fake_.write(at + "/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    }
    policy_.paths.sysroot = fake_.directory();
    policy_.paths.perftest = fake_.directory() + "/ib_write_bw";
  }
  // A server ends when its client has been there; a client finds none at first, as where the server starts slowly.
  void tool(const std::string& client) {
    fake_.write(
        "/ib_write_bw",
        "#!/bin/sh\nfor last; do :; done\ncd " + fake_.directory() +
            "\ncase $last in\n127.0.0.1) [ -e listens ] || { echo \"Couldn't connect to 127.0.0.1\" >&2; exit 1; }\n" +
            client + ";;\n*) touch listens; while [ -e listens ]; do sleep 0.02; done;;\nesac\n");
    std::filesystem::permissions(policy_.paths.perftest, std::filesystem::perms::all);
  }
  health::Result run(const health::Check& check) {
    health::Evidence evidence(policy_, 1e9, 0, {});
    return check.run(evidence);
  }
  FakeRoot fake_;
  health::Policy policy_;
};

}  // namespace

extern const health::Check kPerfRdma, kPerfRnics;

namespace {

TEST_F(RdmaNode, PortsAndMemoryNodesAreFound) {
  const std::vector<RdmaPort> ports = active_ports(fake_.root());
  ASSERT_EQ(ports.size(), 2U);
  EXPECT_EQ(ports[1].name(), "mlx5_1/1");
  EXPECT_EQ(ports[1].model, "MT4129@400");
  fake_.write("/sys/devices/system/node/has_memory", "0-1\n");
  fake_.write("/sys/devices/system/node/node1/cpulist", "2-3,6\n");
  const std::vector<MemoryNode> nodes = memory_nodes(fake_.root());
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_THAT(nodes[1].cpus, ElementsAre(2, 3, 6));
}

TEST_F(RdmaNode, ALoopbackIsJudgedByWhatIsKnownOfTheAdapter) {
  EXPECT_EQ(run(kPerfRdma).outcome, health::Outcome::skip);  // there is no tool
  tool("echo ' 65536 5000 0.00 391.20 0.7'; rm listens");
  const health::Result fast = run(kPerfRdma);
  EXPECT_EQ(fast.outcome, health::Outcome::pass) << fast.note;
  ASSERT_EQ(fast.measured.size(), 2U);
  EXPECT_EQ(fast.measured[0].value, 391.2);
  tool(
      "case \"$*\" in *mlx5_1*) echo ' 65536 5000 0.00 180.00 0.7';; *) echo ' 65536 5000 0.00 391.20 0.7';; esac; rm "
      "listens");
  const health::Result slow = run(kPerfRdma);
  ASSERT_EQ(slow.findings.size(), 1U) << slow.note;
  EXPECT_EQ(slow.outcome, health::Outcome::warn);
  EXPECT_EQ(slow.findings[0].entity, "mlx5_1/1");
  EXPECT_THAT(slow.findings[0].message, HasSubstr("reaches at least 360"));
}

TEST_F(RdmaNode, EachAdapterWritesToTheNext) {
  tool("echo ' 65536 5000 0.00 395.00 0.7'; rm listens");
  const health::Result result = run(kPerfRnics);
  EXPECT_EQ(result.outcome, health::Outcome::pass) << result.note;
  ASSERT_EQ(result.measured.size(), 2U);
  EXPECT_EQ(result.measured[1].entity, "mlx5_1/1 to mlx5_0/1");
}

TEST_F(RdmaNode, AToolThatFailsIsNoFinding) {
  tool("echo Failed to modify QP to RTR >&2; rm listens; exit 1");
  const health::Result result = run(kPerfRnics);
  EXPECT_EQ(result.outcome, health::Outcome::skip);
  EXPECT_THAT(result.note, HasSubstr("Failed to modify QP to RTR"));
}

}  // namespace
}  // namespace ms::diag
