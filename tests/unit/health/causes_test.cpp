// Which finding follows from which: every row of the table joins what it should, and nothing of another device.
#include "health/commands/causes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <tuple>

#include "gpu_node.h"

namespace ms::health {
namespace {

using testing::ElementsAre;

Finding said(std::string code, std::string entity, std::string message) {
  return {.code = std::move(code),
          .severity = Severity::warning,
          .entity = std::move(entity),
          .message = std::move(message)};
}

struct Example {
  Finding effect, cause;
  bool follows, sure;
};

const Finding kOldKernel = said("host.version", "kernel", "is 6.1.0-2, but expect.kernel in policy.toml is 6.1.0-1");
const Finding kBadDimm = said("host.mce", "memory controller mc0", "1 uncorrected memory error on DIMM A1");
const Finding kDeadDisk = said("disk.nvme", "nvme0", "is dead: the kernel dropped its controller");
const Finding kSilentServer = said("disk.nfs", "fs1", "the NFS server does not respond to this node");
const Finding kStray = said("host.strays", "process 77", "python3 of user 1234 is in no job");
const Finding kFatalSwitch = said("gpu.sxid", "switch 0", "fatal error SXid 20034 of the NVSwitch at 0000:c1:00.0");
const Finding kUncorrectable = said("gpu.ecc", "gpu 1", "4 uncorrectable memory errors since the driver was loaded");
const Finding kFellOff = said("gpu.xid", "gpu 1 (0000:11:00.0)", "Xid 79: GPU has fallen off the bus");
const Finding kBusError = said("host.pcie", "0000:11:00.0", "fatal uncorrected PCIe error");
const Finding kDown = said("net.link", "mlx5_0/1", "is down: state 1: DOWN, physical state 2: Polling");
const Finding kNoDriver = said("gpu.driver", "driver", "no answer about 8 GPUs");
const Finding kFewer = said("gpu.count", "node", "7 of 8 GPUs (by expect.gpus) answer");
const Finding kDiskError = said("disk.errors", "sda2", "ext4 found damaged structures or failed to write");
const Finding kBlocked = said("host.hung", "task python3", "was blocked in the kernel for more than 120 s");
const Finding kLustre = said("disk.lustre", "scratch-OST0001", "evicted this client");

const std::vector<Example>& examples() {
  static const std::vector<Example> kExamples = {
      {kFewer, kNoDriver, true, true},
      {kFewer, kFellOff, true, false},
      {kFewer, said("gpu.xid", "gpu 1", "Xid 94: contained memory error"), false, false},
      {kFewer, kBusError, true, false},
      {kFellOff, said("gpu.lost", "gpu 1", "the driver lost it"), true, true},
      {kFellOff, said("gpu.lost", "gpu 10", "the driver lost it"), false, false},
      {kFellOff, kBusError, true, false},
      {kFellOff, said("host.pcie", "0000:11:00.1", "fatal uncorrected PCIe error"), false, false},
      {said("gpu.xid", "gpu 1 (0000:11:00.0)", "Xid 48: double-bit ECC error"), kUncorrectable, true, true},
      {said("gpu.xid", "gpu 1 (0000:11:00.0)", "Xid 62: micro-controller halt"), kUncorrectable, false, false},
      {said("gpu.xid", "gpu 1 (0000:11:00.0)", "Xid 74: NVLink error"), kFatalSwitch, true, false},
      {said("gpu.remap", "gpu 1", "a row waits"), kUncorrectable, true, false},
      {said("gpu.remap", "gpu 2", "a row waits"), kUncorrectable, false, false},
      {said("gpu.recovery", "gpu 1", "a reset"), kUncorrectable, true, false},
      {said("gpu.recovery", "gpu 1", "a reset"), kFellOff, true, false},
      {said("gpu.nvlink", "gpu 0", "16 of 18 NVLinks are active"), kFatalSwitch, true, true},
      {said("gpu.nvlink", "gpu 0", "16 of 18 NVLinks are active"),
       said("gpu.sxid", "switch 0", "non-fatal error SXid 12028 of the NVSwitch at 0000:c1:00.0"), false, false},
      {said("gpu.nvlink", "gpu 0", "0 of 18"), said("gpu.fabric", "gpu 0", "it has not joined"), true, false},
      {said("gpu.nvlink", "gpu 0", "0 of 18"), said("gpu.fabric", "gpu 1", "it has not joined"), false, false},
      {said("gpu.fabric", "gpu 1", "it has not joined"), kFatalSwitch, true, false},
      {said("gpu.nverrors", "gpu 1", "many"), kFatalSwitch, true, false},
      {said("gpu.busy", "gpu 1", "40 GiB of its memory are in use by process 77, x"), kStray, true, true},
      {said("gpu.busy", "gpu 1", "40 GiB of its memory are in use by process 778, x"), kStray, false, false},
      {said("gpu.busy", "gpu 1", "40 GiB of its memory are in use, and the driver names no process"), kStray, true,
       false},
      {said("host.memory", "memory", "512 MiB are usable of 1024 MiB that are expected"),
       said("host.dimms", "DIMMs", "1 of 2 are there"), true, true},
      {said("host.memory", "memory", "512 MiB are usable of 1024 MiB that are expected"), kBadDimm, true, false},
      {said("host.dimms", "DIMMs", "1 of 2 are there"), kBadDimm, true, false},
      {said("host.numa", "NUMA node1", "has less"), said("host.dimms", "DIMMs", "1 of 2 are there"), true, false},
      {said("host.numa", "NUMA node1", "has less"), said("host.memory", "memory", "less"), true, false},
      {said("host.modules", "nvidia-peermem", "not loaded"), kOldKernel, true, false},
      {said("host.modules", "nvidia-peermem", "not loaded"), said("host.version", "BIOS", "is 1"), false, false},
      {said("host.procs", "slurmd", "no such process runs"), kOldKernel, true, false},
      {said("host.procs", "slurmd", "no such process runs"), said("host.modules", "m", "not loaded"), true, false},
      {kBlocked, kDeadDisk, true, false},
      {kBlocked, kSilentServer, true, false},
      {kBlocked, kLustre, true, false},
      {kBlocked, kDiskError, true, false},
      {said("host.hung", "cpu 3", "a processor did not schedule"), kSilentServer, false, false},
      {said("host.load", "load", "300"), kStray, true, false},
      {said("host.free", "memory", "1% are free"), kStray, true, false},
      {said("host.swap", "swap", "much"), kStray, true, false},
      {said("disk.errors", "nvme0", "the controller went down"), kDeadDisk, true, true},
      {said("disk.errors", "nvme0n1p2", "I/O error"), kDeadDisk, true, true},
      {said("disk.errors", "nvme1n1", "I/O error"), kDeadDisk, false, false},
      {said("disk.raid", "md0", "1 of 2 members work"), kDeadDisk, true, false},
      {said("disk.raid", "md0", "1 of 2 members work"), kDiskError, true, false},
      {said("disk.ro", "/", "the kernel made it read-only after an error (ext4 /dev/sda2)"), kDiskError, true, true},
      {said("disk.ro", "/", "is mounted read-only (ext4 /dev/sda2)"), kDiskError, true, false},
      {said("disk.ro", "/", "the kernel made it read-only after an error (ext4 /dev/sdb2)"), kDiskError, false, false},
      {said("disk.mounts", "/data", "nfs4 fs1:/data did not answer within 5s"), kSilentServer, true, true},
      {said("disk.mounts", "/data", "is not mounted (/etc/fstab: nfs fs1:/data)"), kSilentServer, true, true},
      {said("disk.mounts", "/data", "is not mounted (/etc/fstab: nfs fs10:/data)"), kSilentServer, false, false},
      {said("disk.mounts", "/data", "is not mounted"), kSilentServer, true, false},
      {said("disk.mounts", "/data", "lustre 10.0.0.1@o2ib:/data did not answer"), kLustre, true, false},
      {kSilentServer, kDown, true, false},
      {kLustre, kDown, true, false},
      {said("net.link", "mlx5_1/1", "is not there"), said("net.hcas", "adapters", "1 of 2 are there"), true, false},
      {kDown, said("net.mlx5", "0000:17:00.0", "its health is compromised"), true, false},
      {said("net.flaps", "mlx5_0/1", "went down 9 times"), kDown, true, false},
      {said("net.errors", "mlx5_0/1", "symbols"), kDown, true, false},
      {said("net.errors", "mlx5_1/1", "symbols"), kDown, false, false},
      {said("net.mlx5", "0000:11:00.0", "a fatal error"), kBusError, true, false},
      {said("net.pcie", "mlx5_0 0000:11:00.0", "4 of 16 PCIe lanes"), kBusError, true, false},
      {said("slurm.gres", "/dev/nvidia1", "is no device"), kNoDriver, true, false},
      {said("slurm.gres", "/dev/nvidia1", "is no device"), kFewer, true, false},
      {said("slurm.gres", "/dev/nvidia1", "is no device"), said("gpu.lost", "gpu 1", "the driver lost it"), true,
       false},
  };
  return kExamples;
}

TEST(Causes, EveryRowJoinsItsPairAndNoOther) {
  std::set<std::tuple<std::string_view, std::string_view, bool>> joined;
  for (const Example& pair : examples()) {
    const std::string what = pair.effect.str() + " <- " + pair.cause.str();
    const std::vector<Explained> list = by_cause({pair.effect, pair.cause});
    ASSERT_EQ(list.size(), 2U);
    if (!pair.follows) {
      EXPECT_FALSE(list[0].cause || list[1].cause) << what;
      continue;
    }
    EXPECT_EQ(list[0].finding.code, pair.cause.code) << what;
    EXPECT_EQ(list[1].cause, 0U) << what;
    EXPECT_EQ(list[1].depth, 1U) << what;
    EXPECT_EQ(list[1].sure, pair.sure) << what;
    joined.insert({pair.effect.code, pair.cause.code, pair.sure});
  }
  for (const CauseRow& row : cause_rows()) {
    EXPECT_TRUE(joined.contains({row.effect, row.cause, row.sure}))
        << row.effect << " <- " << row.cause << " has no example";
  }
}

// The words that rows ask for are those of the checks.
TEST(Causes, FindingsOfTheChecksThemselvesAreJoined) {
  GpuNode node;
  node.policy.expect.kernel_lines = {"*ACPI*"};
  node.policy.expect.memory_mib = 1024;
  node.policy.expect.dimms = 2;
  node.policy.expect.kernel = "6.1.0-1";
  node.policy.expect.modules = {"nvidia-peermem"};
  node.policy.expect.mounts = {"/data"};
  node.snapshot.gpus[1].lost = true;
  node.snapshot.gpus[2].ecc_uncorrectable = 4;
  node.snapshot.gpus[3].nvlinks_active = 16;
  node.fake.write("/proc/meminfo", "MemTotal: 524288 kB\n");
  node.fake.write("/sys/devices/system/edac/mc/mc0/ue_count", "1\n");
  node.fake.write("/sys/devices/system/edac/mc/mc0/dimm0/size", "512\n");
  node.fake.write("/proc/sys/kernel/osrelease", "6.1.0-2\n");
  node.fake.write("/sys/module/nvidia/refcnt", "1\n");
  node.fake.write("/sys/class/nvme/nvme0/state", "dead\n");
  node.fake.write("/proc/self/mountinfo", "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
  node.fake.write("/etc/fstab", "fs1:/data /data nfs4 defaults 0 0\n");
  node.log({"NVRM: Xid (PCI:0000:11:00): 79, pid=1, GPU has fallen off the bus.",
            "NVRM: Xid (PCI:0000:12:00): 48, pid=1, DBE",
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 42 LTSSM Fault Up",
            "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
            "nfs: server fs1 not responding, still trying"});
  std::vector<Finding> findings;
  for (const char* code :
       {"gpu.lost", "gpu.ecc", "gpu.nvlink", "gpu.xid", "gpu.sxid", "host.mce", "host.memory", "host.dimms",
        "host.version", "host.modules", "disk.mounts", "disk.errors", "disk.nfs", "disk.nvme"}) {
    for (Finding finding : node.run(code).findings) {
      finding.code = code;
      findings.push_back(std::move(finding));
    }
  }
  std::vector<std::string> joined;
  const std::vector<Explained> list = by_cause(findings);
  for (const Explained& explained : list) {
    if (!explained.cause) continue;
    joined.push_back(fmt::format("{} {} {}", explained.finding.code, explained.sure ? "<=" : "<-",
                                 list[*explained.cause].finding.code));
  }
  EXPECT_THAT(joined, testing::UnorderedElementsAre("gpu.xid <= gpu.lost", "gpu.xid <= gpu.ecc",
                                                    "gpu.nvlink <= gpu.sxid", "host.memory <= host.dimms",
                                                    "host.dimms <- host.mce", "host.modules <- host.version",
                                                    "disk.mounts <= disk.nfs", "disk.errors <= disk.nvme"));
}

TEST(Causes, GroupsComeByTheirWorstAndChainsNest) {
  Finding mount = said("disk.mounts", "/data", "nfs4 fs1:/data did not answer within 5s");
  mount.severity = Severity::critical;
  const Finding alone = said("net.mtu", "eth1", "has an MTU of 1500");
  const std::vector<Explained> list = by_cause({alone, mount, kSilentServer, kDown});
  std::vector<std::string> order;
  for (const Explained& e : list) order.push_back(fmt::format("{} {}", e.depth, e.finding.code));
  EXPECT_THAT(order, ElementsAre("0 net.link", "1 disk.nfs", "2 disk.mounts", "0 net.mtu"));
}

// A cause of something comes before what stands alone and is as bad.
TEST(Causes, ACauseComesBeforeALoneFault) {
  const Finding alone = said("net.mtu", "eth1", "has an MTU of 1500");
  const Finding busy = said("gpu.busy", "gpu 1", "40 GiB of its memory are in use by process 77, x");
  const std::vector<Explained> list = by_cause({alone, busy, kStray});
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].finding.code, "host.strays");
  EXPECT_EQ(list[2].finding.code, "net.mtu");
}

// Else a finding could explain itself, and would be printed nowhere.
TEST(Causes, NoCodeIsItsOwnCause) {
  const std::function<bool(std::string_view, std::string_view)> leads = [&](std::string_view from,
                                                                            std::string_view to) {
    for (const CauseRow& row : cause_rows()) {
      if (row.effect == from && (row.cause == to || leads(row.cause, to))) return true;
    }
    return false;
  };
  for (const CauseRow& row : cause_rows()) {
    ASSERT_FALSE(leads(row.cause, row.effect)) << row.effect << " <- " << row.cause;
    for (const std::string_view code : {row.effect, row.cause}) {
      EXPECT_NE(find_check(passive_checks(), code), nullptr) << code;
    }
  }
}

TEST(Causes, TheManualNamesThem) {
  EXPECT_EQ(causes_of("gpu.nvlink"),
            "Its findings follow from those of gpu.sxid, and may follow from those of gpu.fabric.");
  EXPECT_EQ(causes_of("net.mtu"), "");
}

}  // namespace
}  // namespace ms::health
