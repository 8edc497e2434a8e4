// disk.errors, and whose disk a name is.
#include "fake_node.h"
#include "health/evidence/disk_names.h"

namespace ms::health {
namespace {

using ::testing::HasSubstr;

class DiskErrors : public FakeNode {
 protected:
  DiskErrors() {
    make_directory("/sys/block/sda");
    link("/sys/block/sdb", "../devices/pci0000:00/0000:00:14.0/usb1/1-1/host6/target6:0:0/6:0:0:0/block/sdb");
    make_directory("/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/host6/target6:0:0/6:0:0:0/block/sdb");
    link("/sys/block/sdc", "../devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sdc");
    make_directory("/sys/devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sdc");
    put("/sys/block/sdd/removable", "1");
    put("/sys/class/nvme/nvme0/transport", "pcie");
    put("/sys/class/nvme/nvme1/transport", "pcie");
    put("/sys/class/nvme/nvme7/transport", "tcp");
    link("/sys/block/nvme1n1", "../devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1");
    make_directory("/sys/class/nvme-subsystem/nvme-subsys1/nvme7");
    make_directory("/sys/block/nvme5n1");
    const std::string srp = "/devices/pci0000:80/0000:81:00.0/host11/port-11:1/target11:0:0/11:0:0:0/block/sdf";
    const std::string sas = "/devices/pci0000:80/0000:82:00.0/host1/port-1:0/end_device-1:0/target1:0:0/block/sdg";
    const std::string azure = "/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/f8b3/host2/target2:0:0/block/sdh";
    for (const std::string& place : {srp, sas, azure}) {
      make_directory("/sys" + place);
      link("/sys/block" + place.substr(place.rfind('/')), ".." + place);
    }
    make_directory("/sys/block/vda");
    make_directory("/sys/block/dm-0/slaves/nvme0n1p3");
    make_directory("/sys/block/dm-1/slaves/loop0");
    make_directory("/sys/block/dm-2/slaves/dm-0");
    make_directory("/sys/block/dm-3/slaves/dm-3");
    make_directory("/sys/block/md0/slaves/sda1");
  }
};

TEST_F(DiskErrors, AnNvmeDiskWhoseIoTimesOutAgainWarns) {
  const std::string abort = "nvme nvme0: I/O 1 QID 5 timeout, aborting";
  const std::string polled = "nvme nvme0: I/O tag 9 (1009) opcode 0x2 (I/O Cmd) QID 2 timeout, completion polled";
  const std::string reset = "nvme nvme0: I/O 1 QID 5 timeout, reset controller";
  for (const std::vector<std::string>& lines : {std::vector<std::string>{},
                                                {abort, "nvme nvme0: Abort status: 0x0"},
                                                {polled},
                                                {"nvme nvme0: 32/0/0 default/read/poll queues"},
                                                {"nvme[12]: segfault nvme0: I/O 1 QID 5 timeout, reset controller"}}) {
    log(lines);
    EXPECT_OUTCOME(run("disk.errors"), Outcome::pass) << (lines.empty() ? "" : lines[0]);
  }
  log({abort, reset, polled, "nvme nvme7: I/O 1 QID 5 timeout, reset controller"});
  const Result result = run("disk.errors");
  EXPECT_OUTCOME(result, Outcome::warn);
  ASSERT_THAT(entities(result), ::testing::ElementsAre("nvme0", "nvme7"));
  EXPECT_EQ(result.findings[0].measured, 3.0);
  EXPECT_THAT(result.findings[0].message, ::testing::HasSubstr("reset 1 time"));
}

TEST_F(DiskErrors, KnowsWhoseDiskItIs) {
  struct Row {
    std::string device, disk;
    std::optional<Severity> severity;
  };
  const Row rows[] = {
      {"nvme0n1p2", "nvme0n1", Severity::critical},
      {"nvme0n1", "nvme0n1", Severity::critical},
      {"nvme0c1n1", "nvme0c1n1", Severity::critical},
      {"nvme0", "nvme0", Severity::critical},
      {"nvme7n1", "nvme7n1", Severity::warning},  // across a network
      {"nvme9n1", "nvme9n1", Severity::warning},  // gone
      {"nvme1", "nvme1", Severity::critical},
      {"nvme1n1", "nvme1n1", Severity::warning},      // of the subsystem 1, by the controller 7
      {"nvme5n1", "nvme5n1", Severity::warning},      // of a controller that is not known: one is far
      {"nvme0c7n1", "nvme0c7n1", Severity::warning},  // by the controller 7
      {"sdf", "sdf", Severity::warning},              // SRP
      {"sdg", "sdg", Severity::critical},             // SAS
      {"sdh", "sdh", Severity::warning},              // a virtual disk of Azure
      {"sda", "sda", Severity::critical},
      {"sda12", "sda", Severity::critical},
      {"sdb1", "sdb", std::nullopt},      // usb
      {"sdc", "sdc", Severity::warning},  // iSCSI
      {"sdd", "sdd", std::nullopt},       // removable
      {"sdz", "sdz", Severity::warning},  // gone
      {"vda1", "vda", Severity::critical},
      {"xvdf", "xvdf", Severity::warning},  // gone
      {"md0", "md0", Severity::critical},
      {"md0p1", "md0", Severity::critical},
      {"md127", "md127", Severity::critical},
      {"dm-0", "dm-0", Severity::critical},
      {"dm-1", "dm-1", std::nullopt},  // an image
      {"dm-2", "dm-2", Severity::critical},
      {"dm-3", "dm-3", std::nullopt},  // upon itself
      {"dm-9", "dm-9", std::nullopt},
      {"loop0", "loop0", std::nullopt},
      {"sr0", "sr0", std::nullopt},
      {"fd0", "fd0", std::nullopt},
      {"nbd0", "nbd0", std::nullopt},
      {"", "", std::nullopt},
      {"nvme", "nvme", std::nullopt},
      {"md", "md", std::nullopt},
  };
  const Sysroot root(path(""));
  for (const Row& row : rows) {
    EXPECT_EQ(disk_of(row.device), row.disk);
    EXPECT_EQ(disk_severity(root, row.device), row.severity) << row.device;
  }
}

TEST_F(DiskErrors, JudgesLines) {
  struct Row {
    std::string line;
    Outcome outcome;
    std::string entity;
  };
  const Row rows[] = {
      {"I/O error, dev nvme0n1, sector 499204104 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2", Outcome::critical,
       "nvme0n1"},
      {"blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x80700", Outcome::critical, "sda"},
      {"print_req_error: critical medium error, dev sda, sector 2048", Outcome::critical, "sda"},
      {"critical target error, dev nvme0n1, sector 9 op 0x0:(READ) flags 0x0", Outcome::critical, "nvme0n1"},
      {"timeout error, dev sda, sector 9 op 0x0:(READ) flags 0x0", Outcome::warn, "sda"},
      {"I/O error, dev sdc, sector 9 op 0x0:(READ) flags 0x0", Outcome::warn, "sdc"},
      {"Buffer I/O error on dev sda1, logical block 5, lost async page write", Outcome::critical, "sda1"},
      {"nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", Outcome::critical, "nvme0"},
      {"nvme nvme0: Device not ready; aborting reset, CSTS=0x1", Outcome::critical, "nvme0"},
      {"nvme nvme0: Removing after probe failure status: -19", Outcome::critical, "nvme0"},
      {"nvme nvme0: Disabling device after reset failure: -19", Outcome::critical, "nvme0"},
      {"nvme nvme7: Device not ready; aborting reset, CSTS=0x1", Outcome::warn, "nvme7"},
      {"nvme nvme9: Removing after probe failure status: -19", Outcome::warn, "nvme9"},
      {"nvme nvme9: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", Outcome::critical, "nvme9"},
      {"ata1.00: failed command: READ FPDMA QUEUED", Outcome::warn, "ata1"},
      {"md/raid1:md0: Disk failure on sda1, disabling device.\\x0amd/raid1:md0: Operation continuing on 1 devices.",
       Outcome::critical, "md0"},
      {"md/raid:md0: Disk failure on sda1, disabling device.", Outcome::critical, "md0"},
      {"md/raid10:md0: Disk failure on sda1, disabling device.", Outcome::critical, "md0"},
      {"EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
       Outcome::critical, "nvme0n1p2"},
      {"EXT4-fs error (device sda1) in ext4_reserve_inode_write:5764: IO failure", Outcome::critical, "sda1"},
      {"EXT4-fs error (device dm-0): ext4_journal_check_start:83: comm python3: Detected aborted journal",
       Outcome::critical, "dm-0"},
      {"Aborting journal on device sda1-8.", Outcome::critical, "sda1"},
      {"XFS (nvme0n1p2): Metadata corruption detected at xfs_agf_read_verify+0x1/0x2 [xfs], xfs_agf block 0x1",
       Outcome::critical, "nvme0n1p2"},
      {"XFS (sda1): Metadata I/O Error (0x1) detected at xfs_trans_read_buf_map+0x1b8/0x2f0 [xfs].  Shutting down.",
       Outcome::critical, "sda1"},
      {"XFS (sda1): Filesystem has been shut down due to log error (0x2).", Outcome::critical, "sda1"},
      {"XFS (sda1): Corruption of in-memory data (0x8) detected at xfs_defer_finish. Shutting down filesystem.",
       Outcome::critical, "sda1"},
      {"BTRFS critical (device sda1): corrupt leaf", Outcome::critical, "sda1"},
      {"BTRFS: error (device sda1) in __btrfs_free_extent:3: errno=-5 IO failure", Outcome::critical, "sda1"},
      {"BTRFS error (device sda1: state EA): bdev /dev/sda1 errs: wr 1, rd 0, flush 0, corrupt 0, gen 0",
       Outcome::critical, "sda1"},
      {"BTRFS error (device sda1): level verify failed", Outcome::warn, "sda1"},
  };
  for (const Row& row : rows) {
    const Result result = run_on_line("disk.errors", row.line);
    EXPECT_OUTCOME(result, row.outcome) << row.line;
    ASSERT_EQ(result.findings.size(), 1U) << row.line;
    EXPECT_EQ(result.findings[0].entity, row.entity) << row.line;
  }
}

TEST_F(DiskErrors, HarmlessUsersAndForgedLinesAreNothing) {
  const std::string rows[] = {
      // a user may be behind these
      "I/O error, dev loop0, sector 0 op 0x0:(READ) flags 0x80700",
      "I/O error, dev sdb, sector 0 op 0x0:(READ) flags 0x80700",
      "I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700",
      "EXT4-fs error (device loop3): ext4_lookup:1: inode #2: comm ls: deleted inode referenced: 12",
      "EXT4-fs error (device dm-1): ext4_lookup:1: inode #2: comm ls: deleted inode referenced: 12",
      "critical space allocation error, dev sda, sector 9 op 0x1:(WRITE) flags 0x0",  // a full thin pool
      // harmless
      "critical target error, dev sda, sector 0 op 0x3:(DISCARD) flags 0x800",
      "operation not supported error, dev sda, sector 0 op 0x9:(WRITE_ZEROES) flags 0x0",
      "EXT4-fs (sda1): mounted filesystem with ordered data mode. Quota mode: none.",
      "XFS (sda1): Ending clean mount",
      "XFS (sda1): User initiated shutdown received.",
      "XFS (sda1): Metadata I/O Error (0x4) detected at xfs_fs_goingdown+0x5c/0xd0 [xfs].  Shutting down filesystem.",
      "nvme nvme0: 8/0/0 default/read/poll queues",
      "md/raid1:md0: active with 2 out of 2 mirrors",
      "BTRFS info (device sda1): using crc32c",
      // forged
      "I/O error, dev [4711]: segfault at 0 in I/O error, dev sda, sector 9",
      "I/O error, dev sda [4711]: segfault",
      "python3[4711]: segfault at 0 ip 0 sp 0 error 4 in I/O error, dev sda, sector 9",
      "EXT4-fs error ([4711]: segfault at 0 in (device sda1): x",
      " I/O error, dev sda, sector 9",
      "XFS (sda1): Met[4711]: segfault",
      "I/O error, dev ../sda, sector 9",
  };
  for (const std::string& line : rows) EXPECT_OUTCOME(run_on_line("disk.errors", line), Outcome::pass) << line;
}

// What the present state contradicts is a warning; without that state, or against it, the fault stays one.
TEST_F(DiskErrors, WhatWorksAgainWarns) {
  const std::string down = "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10";
  const std::string member = "md/raid1:md0: Disk failure on sda1, disabling device.";
  const std::string error = "I/O error, dev sda, sector 9 op 0x0:(READ) flags 0x0";
  const std::string back = "device-mapper: multipath: 253:2: Reinstating path 8:0.";
  struct Row {
    std::vector<std::string> lines;
    std::string state, members;
    Outcome outcome;
  };
  const Row rows[] = {
      {{down}, "live", "2/2", Outcome::warn},
      {{down}, "resetting", "2/2", Outcome::critical},
      {{down, down}, "live", "2/2", Outcome::critical},
      {{member}, "live", "2/2", Outcome::warn},
      {{member}, "live", "2/1", Outcome::critical},
      {{error, back}, "live", "2/2", Outcome::warn},
      {{error}, "live", "2/2", Outcome::critical},
      {{error, "device-mapper: multipath: 253:2: Reinstating path 8:16."}, "live", "2/2", Outcome::critical},
      {{"critical medium error, dev sda, sector 9", back}, "live", "2/2", Outcome::critical},
  };
  for (const Row& row : rows) {
    put("/sys/class/nvme/nvme0/state", row.state);
    put("/proc/mdstat", "md0 : active raid1 sdb1[1] sda1[0]\n      100 blocks super 1.2 [" + row.members + "] [UU]");
    log(row.lines);
    EXPECT_OUTCOME(run("disk.errors"), row.outcome) << row.lines[0] << " " << row.state << " " << row.members;
  }
}

// A self-encrypting disk denies access until it is unlocked; a real medium error behind that counts.
TEST_F(DiskErrors, ADiskThatDeniesAccessHasNoFault) {
  const std::string denied = "nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Access Denied (sct 0x2 / sc 0x86) DNR ";
  const std::string unread = "nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR ";
  const std::string medium = "critical medium error, dev nvme0n1, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1";
  const std::string cached = "Buffer I/O error on dev nvme0n1, logical block 0, async page read";
  log({denied, medium, cached});
  EXPECT_OUTCOME(run("disk.errors"), Outcome::pass);
  log({denied, medium, unread, medium, cached});
  EXPECT_OUTCOME(run("disk.errors"), Outcome::critical);
  log({medium, denied});
  EXPECT_OUTCOME(run("disk.errors"), Outcome::critical);
}

TEST_F(DiskErrors, ARequestThatTheDiskRefusesForAReasonIsNoFault) {
  const std::string write_same =
      "sd 0:0:0:0: [sda] tag#1 CDB: Write same(16) 93 08 00 00 00 00 00 00 08 00 00 00 ff ff";
  const std::string read = "sd 0:0:0:0: [sda] tag#1 CDB: Read(10) 28 00 00 00 08 00 00 00 08 00";
  const std::string target = "blk_update_request: critical target error, dev sda, sector 2048";
  const std::string error = "I/O error, dev nvme0n1, sector 0 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2";
  struct Row {
    std::vector<std::string> lines;
    Outcome outcome;
  };
  const Row rows[] = {
      {{write_same, target}, Outcome::pass},
      {{read, target}, Outcome::critical},
      {{write_same, read, target}, Outcome::critical},
      {{target}, Outcome::critical},
      {{target + " op 0x7:(WRITE_SAME) flags 0x0"}, Outcome::pass},
      {{"nvme0n1: Write(0x1) @ LBA 0, 8 blocks, Namespace is Write Protected (sct 0x0 / sc 0x20) DNR", error},
       Outcome::warn},
      {{"nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Sanitize In Progress (sct 0x0 / sc 0x1d) DNR", error}, Outcome::warn},
      {{"nvme0n1: Read(0x2) @ LBA 9, 8 blocks, LBA Out of Range (sct 0x0 / sc 0x80) DNR", error}, Outcome::warn},
      {{"nvme0n1: Read(0x2) @ LBA 9, 8 blocks, Internal Error (sct 0x0 / sc 0x6) DNR", error}, Outcome::critical},
  };
  for (const Row& row : rows) {
    log(row.lines);
    EXPECT_OUTCOME(run("disk.errors"), row.outcome) << row.lines[0];
  }
}

// What names no block device, or is no more than a sign.
TEST_F(DiskErrors, PoolsControllersAndSignsWarn) {
  const struct {
    std::string line, entity;
  } rows[] = {
      {"WARNING: Pool 'tank' has encountered an uncorrectable I/O failure and has been suspended.", "pool tank"},
      {"zio pool=tank vdev=/dev/sda1 error=5 type=1 offset=270336 size=8192 flags=b08c1", "pool tank"},
      {"zio pool=tank vdev=/dev/sda1 error=5 type=6 offset=270336 size=8192 flags=b08c1", ""},  // trim
      {"mpt3sas_cm0: fault_state(0x5854)!", "mpt3sas_cm0"},
      {"megaraid_sas 0000:18:00.0: 4711 (758263718s/0x0001/CRIT) - VD 00/0 is now DEGRADED", "0000:18:00.0"},
      {"megaraid_sas 0000:18:00.0: 4711 (758263718s/0x0001/WARN) - Patrol Read started", ""},
      {"smartpqi 0000:5c:00.0: controller is offline: status code 0x6100c", "0000:5c:00.0"},
      {"EXT4-fs (nvme0n1p2): warning: mounting fs with errors, running e2fsck is recommended", "nvme0n1p2"},
      {"EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "nvme0n1p2"},
      {"EXT4-fs (loop3): warning: mounting fs with errors, running e2fsck is recommended", ""},
      {"BTRFS warning (device nvme0n1p1): csum failed root 5 ino 257 off 0 csum 0x98f9 expected csum 0x94c4 mirror 1",
       "nvme0n1p1"},
      {"XFS (nvme0n1p1): log mount/recovery failed: error -117", "nvme0n1p1"},
  };
  for (const auto& row : rows) {
    const Result result = run_on_line("disk.errors", row.line);
    EXPECT_OUTCOME(result, row.entity.empty() ? Outcome::pass : Outcome::warn) << row.line;
    if (!row.entity.empty()) { EXPECT_THAT(entities(result), ::testing::ElementsAre(row.entity)); }
  }
}

TEST_F(DiskErrors, CountsAndSkips) {
  EXPECT_OUTCOME(run("disk.errors"), Outcome::skip);
  log({"I/O error, dev sda, sector 1 op 0x0:(READ)", "I/O error, dev sda, sector 2 op 0x0:(READ)"});
  const Result result = run("disk.errors");
  ASSERT_EQ(result.findings.size(), 1U);
  EXPECT_EQ(result.findings[0].measured, 2.0);
  EXPECT_THAT(result.findings[0].message, HasSubstr("2 times"));
}

}  // namespace
}  // namespace ms::health
