// host.mce, host.hung and host.kmsg: what of the kernel's log counts, and what does not, however much it looks like it.
#include "fake_node.h"

namespace ms::health {
namespace {

using ::testing::HasSubstr;

struct LineRow {
  std::string line;
  Outcome outcome;
  std::string entity;
};

class HostMce : public FakeNode {};
class HostHung : public FakeNode {};
class HostKmsg : public FakeNode {};

TEST_F(HostMce, JudgesLines) {
  const LineRow rows[] = {
      {"mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400", Outcome::critical, "cpu 2 bank 5"},
      {"mce: [Hardware Error]: CPU 11: Machine Check Exception: 5 Bank 4: b200000000070f0f", Outcome::critical,
       "cpu 11 bank 4"},
      {"mce: Uncorrected hardware memory error in user-access at 1ba8c25000", Outcome::critical, "memory"},
      {"[Hardware Error]: System Fatal error.", Outcome::critical, "machine check"},
      {"[Hardware Error]: Uncorrected, software restartable error.", Outcome::critical, "machine check"},
      {"[Hardware Error]: Deferred error, no action required.", Outcome::warn, "machine check"},
      {"EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0 page:0x1ba8c25 ...)",
       Outcome::critical, "memory controller 0"},
      {"EDAC MC2: 1 UE on mc#0csrow#2channel#0 (csrow:2 channel:0 page:0x7d41b7 offset:0x940 grain:64)",
       Outcome::critical, "memory controller 2"},
      {"EDAC MC2: 1 UE on unknown memory (page:0x0 offset:0x0 grain:64)", Outcome::critical, "memory controller 2"},
      {"EDAC MC0: 1 UE ie31200 UE on mc#0csrow#0channel#1 (csrow:0 channel:1 page:0x0 offset:0x0 grain:8)",
       Outcome::critical, "memory controller 0"},
      {"Memory failure: 0x3b6d8c: Killing python3:4711 due to hardware memory corruption", Outcome::warn, "memory"},
      {"Memory failure: 0x3b6d8c: Sending SIGBUS to a b:4711 due to hardware memory corruption", Outcome::warn,
       "memory"},
      {"amdgpu 0000:63:00.0: amdgpu: uncorrectable hardware errors detected in umc block", Outcome::warn,
       "gpu 0000:63:00.0"},
      {"amdgpu 0000:63:00.0: amdgpu: socket: 0, die: 0 1 uncorrectable hardware errors detected in total in gfx block",
       Outcome::warn, "gpu 0000:63:00.0"},
      {"amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", Outcome::warn,
       "gpu 0000:1c:00.0"},
      {"amdgpu 0000:1c:00.0: amdgpu: {12}socket: 2, die: 0, 3 new uncorrectable hardware errors detected in umc block",
       Outcome::warn, "gpu 0000:1c:00.0"},
      {"amdgpu 0000:1c:00.0: amdgpu: GPU reset(2) failed", Outcome::warn, "gpu 0000:1c:00.0"},
      {"amdgpu 0000:1c:00.0: amdgpu: RAS records:260 exceed threshold:256, GPU will not be initialized. Replace this "
       "GPU or increase the threshold",
       Outcome::warn, "gpu 0000:1c:00.0"},
      {"amdgpu 0000:1c:00.0: Fatal error during GPU init", Outcome::warn, "gpu 0000:1c:00.0"},
      {"amdgpu 0000:1c:00.0: probe with driver amdgpu failed with error -62", Outcome::warn, "gpu 0000:1c:00.0"},
      {"amdgpu 0000:1c:00.0: amdgpu: poison is consumed by client 27, kick off gpu reset flow", Outcome::warn,
       "gpu 0000:1c:00.0"},
      {"EDAC MC0: 1 UE FAKE ERROR on mc#0csrow#0channel#0 (csrow:0 channel:0 page:0x0 - for EDAC testing only)",
       Outcome::warn, "memory controller 0"},
      {"mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 13: bc00008001010091", Outcome::warn, "cpu 0 bank 13"},
      {"EDAC MC1: 11 CE memory scrubbing error on CPU_SrcID#1_MC#1_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1 ...)",
       Outcome::warn, "memory controller 1"},
  };
  for (const LineRow& row : rows) {
    log({row.line}, 1000);
    const Result result = run("host.mce");
    EXPECT_OUTCOME(result, row.outcome) << row.line;
    ASSERT_EQ(result.findings.size(), 1U) << row.line;
    EXPECT_EQ(result.findings[0].entity, row.entity) << row.line;
  }
}

// Records of an earlier boot, and tests, are no fault of this boot; a record of this boot stays one.
TEST_F(HostMce, RecordsOfAnEarlierBootAndTestsWarn) {
  const std::string bank = "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: bea0000000000108";
  const std::string untimed = "mce: [Hardware Error]: TSC 0 ADDR 1ffffb51181c0 MISC d012000100000000";
  const std::string timed = "mce: [Hardware Error]: TSC 5a3f ADDR 1ffffb51181c0";
  const std::string fatal = "[Hardware Error]: System Fatal error.";
  const std::string mce_inject = "mce: Machine check injector initialized";
  const std::string einj = "EINJ: Error INJection is initialized.";
  const std::string firmware = "{1}[Hardware Error]: event severity: recoverable";
  const std::string memory = "{1}[Hardware Error]:   section_type: memory error";
  struct Row {
    std::vector<std::string> lines;
    double first_s;
    Outcome outcome;
  };
  const Row rows[] = {
      {{bank, untimed}, 0.7, Outcome::warn},
      {{bank, timed}, 0.7, Outcome::critical},
      {{bank}, 0.7, Outcome::critical},
      {{bank, untimed}, 1000, Outcome::critical},
      {{fatal}, 5, Outcome::warn},
      {{fatal}, 1000, Outcome::critical},
      {{mce_inject, bank, timed}, 1000, Outcome::warn},
      {{mce_inject, bank, timed}, 5, Outcome::critical},  // built in
      {{einj, firmware, memory}, 1000, Outcome::warn},
      {{einj, firmware, memory}, 5, Outcome::critical},
      {{firmware, memory, einj}, 1000, Outcome::critical},
  };
  for (const Row& row : rows) {
    log(row.lines, row.first_s);
    EXPECT_OUTCOME(run("host.mce"), row.outcome) << row.lines[0] << " at " << row.first_s;
  }
}

// Corrected by the processor, by firmware (bank 255 is HPE's), or by a DIMM now and then: no part is to be replaced.
TEST_F(HostMce, CorrectedErrorsAreNormal) {
  log({"mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: 8c00004000010090",
       "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: 9c00004000010090",
       "mce: [Hardware Error]: Machine check events logged", "[Hardware Error]: Corrected error, no action required.",
       "[Hardware Error]: CPU:2 (19:61:2) MC21_STATUS[Over|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0xdc2040000400011b",
       "[Hardware Error]: CPU:0 (19:1:1) MC255_STATUS[-|CE|-|-|AddrV|-|-|-|-|-]: 0x940000000000009f",
       "EDAC MC0: 1 CE on mc#0csrow#2channel#0 (csrow:2 channel:0 page:0x7d41b7 offset:0x940 grain:64 syndrome:0x100)",
       "EDAC MC0: 3 CE on mc#0csrow#2channel#0 (csrow:2 channel:0 page:0x7d41b8 offset:0x940 grain:64 syndrome:0x100)",
       "EDAC MC0: 1 CE on mc#0csrow#3channel#0 (csrow:3 channel:0 page:0x7d41b7 offset:0x940 grain:64 "
       "syndrome:0x100)"});
  EXPECT_OUTCOME(run("host.mce"), Outcome::pass);
}

TEST_F(HostMce, ADimmThatCorrectsTheSamePageAgainIsNamed) {
  const std::string line =
      "EDAC MC1: 1 CE memory scrubbing error on DIMM_A1 (channel:0 slot:0 page:0xee30a0 offset:0x0)";
  log({line, line});
  const Result result = run("host.mce");
  EXPECT_OUTCOME(result, Outcome::warn);
  EXPECT_THAT(result.findings.at(0).message, HasSubstr("on DIMM_A1"));
  EXPECT_EQ(result.findings[0].measured, 2.0);
  const std::string nowhere = "EDAC MC1: 1 CE on unknown memory (page:0x0 offset:0x0)";
  log({nowhere, nowhere});
  EXPECT_OUTCOME(run("host.mce"), Outcome::pass);
}

TEST_F(HostMce, ManyCorrectedErrorsOfADimmInADayAreAWarning) {
  std::vector<std::string> lines;
  for (int i = 0; i < 11; ++i)
    lines.push_back("EDAC MC0: 1 CE on DIMM_A1 (csrow:2 page:0x" + std::to_string(i + 1) + " offset:0x0)");
  log(lines);
  EXPECT_THAT(entities(run("host.mce")), ::testing::ElementsAre("memory controller 0"));
  lines.pop_back();
  log(lines);
  EXPECT_OUTCOME(run("host.mce"), Outcome::pass);
}

TEST_F(HostMce, ALineOfAnotherKindIsNothing) {
  const std::string rows[] = {
      "mce: CPU3: Package temperature above threshold, cpu clock throttled (total events = 1)",
      "mce: CPU0 supports 20 MCE banks",
      "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0: DEV 0000:3a:0a.0",
      "Memory failure: 0x12345: recovery action for dirty LRU page: Recovered",
      "MCE: Killing uffd:4711 due to hardware memory corruption fault at 4631e000",  // a program can poison its pages
      "amdgpu 0000:63:00.0: amdgpu: 3 correctable hardware errors detected in umc block",
      "[Hardware Error]: event severity: fatal",  // of the boot before (BERT)
      "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
  };
  for (const std::string& line : rows) EXPECT_OUTCOME(run_on_line("host.mce", line), Outcome::pass) << line;
}

// A process name is 15 bytes of its owner's choice, at the beginning of some lines; file names come further on.
TEST_F(HostMce, AForgedLineIsNothing) {
  const std::string rows[] = {
      "EDAC MC0: 1 UE [4711]: segfault at 0 ip 0000 sp 0000 error 4 in memory read error on X (page:0x1",
      "EDAC MC0: 1 UE  on X (page:0x1)",
      "EDAC MC0: 1 UE  (4711): drop_caches: 3 on X (page:0x1)",
      "EDAC MC0: 9 UE: page allocation failure: order:4 on X (page:0x1)",
      "mce: [Hardware [4711]: segfault at 0 in mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400",
      " mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400",
      "python3[4711]: segfault at 0 in mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400",
      "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400 and more",
      "{1}[Hardware Er[4711]: segfault at 0 in event severity: fatal",
      "[Hardware Error]: System Fatal error. Or so it says",
  };
  for (const std::string& line : rows) EXPECT_OUTCOME(run_on_line("host.mce", line), Outcome::pass) << line;
}

// Without PCC, S and AR an error was not used on Intel; AMD has other bits there.
TEST_F(HostMce, AnErrorThatWasNotUsedWarnsOnIntel) {
  const std::string bank = "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 13: bc00008001010091";
  log({bank, "mce: [Hardware Error]: TSC 123abc ADDR 1ba8c25000", "mce: [Hardware Error]: PROCESSOR 0:606a6 TIME 17"});
  EXPECT_OUTCOME(run("host.mce"), Outcome::warn);
  log({bank, "mce: [Hardware Error]: TSC 123abc ADDR 1ba8c25000", "mce: [Hardware Error]: PROCESSOR 2:a00f11 TIME 17"});
  EXPECT_OUTCOME(run("host.mce"), Outcome::critical);
  put("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD");
  log({bank});
  EXPECT_OUTCOME(run("host.mce"), Outcome::critical);
}

TEST_F(HostMce, AMadeUpErrorDoesNotCountInTheControllerEither) {
  put("/sys/devices/system/edac/mc/mc0/ue_count", "1");
  log({"EDAC MC0: 1 UE FAKE ERROR on mc#0csrow#0 (csrow:0 channel:0 page:0x0 - for EDAC testing only)"});
  EXPECT_OUTCOME(run("host.mce"), Outcome::warn);
  put("/sys/devices/system/edac/mc/mc0/ue_count", "2");
  EXPECT_OUTCOME(run("host.mce"), Outcome::critical);
}

TEST_F(HostMce, LinesOfProgramsDoNotCount) {
  put("/dev/kmsg", "11,1,1000000,-;mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400");
  EXPECT_OUTCOME(run("host.mce"), Outcome::pass);
}

TEST_F(HostMce, FirmwareReportsAreReadTogether) {
  const auto report = [&](const std::string& severity, const std::string& section) {
    log({"{7}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4",
         "{7}[Hardware Error]: event severity: " + severity, "{7}[Hardware Error]:  Error 0, type: " + severity,
         "{7}[Hardware Error]:   section_type: " + section});
    return run("host.mce");
  };
  EXPECT_OUTCOME(report("recoverable", "memory error"), Outcome::critical);
  EXPECT_OUTCOME(report("fatal", "PCIe error"), Outcome::critical);
  EXPECT_OUTCOME(report("recoverable", "PCIe error"), Outcome::warn);
  EXPECT_OUTCOME(report("corrected", "memory error"), Outcome::pass);
  EXPECT_OUTCOME(report("info", "memory error"), Outcome::pass);
  EXPECT_EQ(report("fatal", "memory error").findings[0].entity, "firmware");
  const auto second = [&](const std::string& severity) {
    log({"{4}[Hardware Error]: event severity: recoverable", "{4}[Hardware Error]:  Error 0, type: " + severity,
         "{4}[Hardware Error]:   section_type: memory error", "{4}[Hardware Error]:  Error 1, type: recoverable",
         "{4}[Hardware Error]:   section_type: PCIe error"});
    return run("host.mce");
  };
  EXPECT_OUTCOME(second("corrected"), Outcome::warn) << "each section has its own severity";
  EXPECT_OUTCOME(second("recoverable"), Outcome::critical);
}

TEST_F(HostMce, NamesTheDimmWhereItIsKnown) {
  const std::string controller = "/sys/devices/system/edac/mc/mc0";
  put(controller + "/ue_count", "2");
  put(controller + "/dimm0/dimm_label", "CPU1_DIMM_A1");
  put(controller + "/dimm1/dimm_label", "CPU1_DIMM_B1");
  const Result unknown = run("host.mce");
  EXPECT_THAT(unknown.findings.at(0).message, HasSubstr("only the controller is known"));
  EXPECT_THAT(unknown.findings[0].remedy, HasSubstr("ipmitool sel list"));
  put(controller + "/dimm0/dimm_ue_count", "0");
  put(controller + "/dimm1/dimm_ue_count", "2");
  const Result known = run("host.mce");
  EXPECT_EQ(known.findings.at(0).message, "2 uncorrected memory errors on DIMM CPU1_DIMM_B1");
}

TEST_F(HostMce, EqualLinesAreOneFinding) {
  const std::string line = "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400";
  log({line, line, line});
  const Result result = run("host.mce");
  ASSERT_EQ(result.findings.size(), 1U);
  EXPECT_EQ(result.findings[0].measured, 3.0);
  EXPECT_THAT(result.findings[0].message, HasSubstr("3 times"));
}

TEST_F(HostMce, AFloodOfDifferentLinesStaysBoundedWorstFirst) {
  std::vector<std::string> lines;
  for (int i = 0; i < 500; ++i) {
    lines.push_back("EDAC MC" + std::to_string(i) + ": 1 UE memory read error on DIMM_A (channel:0)");
  }
  lines.push_back("[Hardware Error]: System Fatal error.");
  log(lines);
  const Result result = run("host.mce");
  EXPECT_EQ(result.findings.size(), 16U);
  EXPECT_EQ(result.findings[0].severity, Severity::critical);
}

TEST_F(HostMce, MemoryControllersCount) {
  const std::string mc = "/sys/devices/system/edac/mc/mc0";
  put(mc + "/ue_count", "0");
  put(mc + "/ce_count", "17");
  put("/sys/devices/system/edac/mc/power/ue_count", "5");  // no controller
  const Result clean = run("host.mce");
  EXPECT_OUTCOME(clean, Outcome::pass);  // without a log too
  ASSERT_EQ(clean.counters.size(), 1U);

  put(mc + "/ce_count", "117");
  EXPECT_OUTCOME(run("host.mce", clean.counters, kNow_s + 60), Outcome::pass);  // exactly the limit
  put(mc + "/ce_count", "118");
  const Result many = run("host.mce", clean.counters, kNow_s + 60);
  EXPECT_OUTCOME(many, Outcome::warn);
  EXPECT_EQ(many.findings[0].measured, 101.0);
  EXPECT_OUTCOME(run("host.mce", clean.counters, kNow_s + 7200), Outcome::pass);  // 50 an hour

  put(mc + "/ue_count", "2");
  const Result lost = run("host.mce");
  EXPECT_OUTCOME(lost, Outcome::critical);
  EXPECT_EQ(lost.findings[0].entity, "memory controller mc0");
}

TEST_F(HostMce, SkipsWithoutAnyEvidence) { EXPECT_OUTCOME(run("host.mce"), Outcome::skip); }

TEST_F(HostHung, JudgesLines) {
  const LineRow rows[] = {
      {"INFO: task python3:4711 blocked for more than 120 seconds.", Outcome::warn, "task python3"},
      {"INFO: task a b:c\\x0a:12 blocked for more than 122 seconds.", Outcome::warn, "task a b:c\\x0a"},
      {"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:4711]", Outcome::warn, "cpu 3"},
      {"NMI watchdog: Watchdog detected hard LOCKUP on cpu 7", Outcome::warn, "cpu 7"},
      {"watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 12", Outcome::warn, "cpu 12"},
      {"INFO: task python3:4711 blocked in I/O wait for more than 122 seconds.", Outcome::warn, "task python3"},
      {"INFO: task python3:4711 is blocked on a mutex likely owned by task python3:4712.", Outcome::pass, ""},
      {"SError Interrupt on CPU12, code 0x00000000be000011 -- SError", Outcome::warn, "cpu 12"},
      {"Internal error: synchronous external abort: 0000000096000410 [#1] SMP", Outcome::warn, "kernel"},
      {"rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", Outcome::warn, "kernel"},
      {"BUG: unable to handle page fault for address: ffffffffc0000000", Outcome::warn, "kernel"},
      {"kernel BUG at mm/slub.c:306!", Outcome::warn, "kernel"},
      {"Oops: 0002 [#1] PREEMPT SMP NOPTI", Outcome::warn, "kernel"},
      {"Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP NOPTI", Outcome::warn,
       "kernel"},
      {"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,"
       "task_memcg=/system.slice/munge.service,task=munged,pid=811,uid=998",
       Outcome::warn, "munge.service"},
      {"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,"
       "task_memcg=/system.slice/slurmd.service,task=python3,pid=811,uid=1000",
       Outcome::pass, ""},
      {"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,"
       "task_memcg=/system.slice/slurmstepd.scope/job_8/step_0/user/task_1,task=slurmd,pid=811,uid=0",
       Outcome::pass, ""},
      {"Oops: x[4711]: segfault at 0 ip 000055d1 sp 00007ffd error 4 in a.out[55d1000+1000]", Outcome::pass, ""},
      {"Oops: [#1] [4711]: segfault at 0 ip 000055d1 sp 00007ffd error 4 in a [#1][55d1000+1000]", Outcome::pass, ""},
      {"kernel BUG at x[4711]: segfault at 0 ip 0 sp 0 error 4 in a.c:1!", Outcome::pass, ""},
      {"rcu: INFO: rcu_[4711]: segfault at 0 in stall", Outcome::pass, ""},
      {"INFO: task python3 blocked for more than 120 seconds.", Outcome::pass, ""},
      {"INFO: task python3:4711 blocked for more than 120 seconds. Or so", Outcome::pass, ""},
      {"traps: python3[4711] general protection fault ip:55 sp:7f error:0 in python3", Outcome::pass, ""},
      {"python3[4711]: segfault at 0 ip 0 sp 0 error 4 in Oops: 0002", Outcome::pass, ""},
      {"rcu: INFO: rcu_tasks callbacks are fine", Outcome::pass, ""},
  };
  for (const LineRow& row : rows) {
    const Result result = run_on_line("host.hung", row.line);
    EXPECT_OUTCOME(result, row.outcome) << row.line;
    if (row.outcome == Outcome::pass) continue;
    ASSERT_EQ(result.findings.size(), 1U) << row.line;
    EXPECT_EQ(result.findings[0].entity, row.entity) << row.line;
  }
}

TEST_F(HostHung, WhatPassesCountsForADay) {
  put("/proc/uptime", "200000.55 1000.00");
  log({"INFO: task python3:4711 blocked for more than 120 seconds."}, 200000 - 86400 - 10);
  EXPECT_OUTCOME(run("host.hung"), Outcome::pass);
  log({"INFO: task python3:4711 blocked for more than 120 seconds."}, 200000 - 86400 + 10);
  EXPECT_OUTCOME(run("host.hung"), Outcome::warn);
  log({"watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:4711]"}, 5);
  EXPECT_OUTCOME(run("host.hung"), Outcome::pass);
  log({"Oops: 0002 [#1] PREEMPT SMP NOPTI"}, 5);
  EXPECT_OUTCOME(run("host.hung"), Outcome::warn);
}

TEST_F(HostHung, SkipsWithoutALog) { EXPECT_OUTCOME(run("host.hung"), Outcome::skip); }

// A line that another check of the run made a finding of is left to that; what no check knows stands alone.
TEST_F(HostKmsg, LeavesToOthersWhatTheyJudged) {
  policy.expect.kernel_lines = {"*ACPI BIOS Error*"};
  put("/sys/bus/pci/devices/0000:11:00.0/vendor", "0x10de");
  put("/sys/bus/pci/devices/0000:11:00.0/class", "0x030200");
  put("/sys/class/nvme/nvme0/transport", "pcie");
  const struct {
    const char* code;
    std::string line;
  } rows[] = {
      {"gpu.xid", "NVRM: Xid (PCI:0000:11:00): 79, pid=1, GPU has fallen off the bus."},
      {"gpu.xid",
       "NVRM: Xid (PCI:0000:11:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU "
       "Reset Required)"},
      {"gpu.sxid", "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 42 LTSSM Fault Up"},
      {"host.mce", "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 5: be00000000800400"},
      {"host.mce", "{7}[Hardware Error]: event severity: fatal"},
      {"host.hung", "INFO: task python3:4711 blocked for more than 120 seconds."},
      {"host.hung", "BUG: unable to handle page fault for address: ffff"},
      {"host.pcie", "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0"},
      {"host.thermal", "mce: CPU3: Core temperature/speed above threshold, cpu clock throttled (total events = 1)"},
      {"disk.errors", "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"},
      {"disk.errors", "ata1.00: failed command: READ FPDMA QUEUED"},
      {"disk.nfs", "nfs: server fs1 not responding, still trying"},
      {"disk.lustre", "LustreError: a-MDT0000-mdc-ff: This client was evicted by a-MDT0000; in progress"},
      {"net.mlx5", "mlx5_core 0000:3b:00.1: device's health compromised - reached miss count"}};
  for (const auto& row : rows) {
    log({row.line, "something new"});
    Evidence evidence(policy, kNow_s, 0, {});
    EXPECT_THAT(find_check(passive_checks(), row.code)->run(evidence).findings, testing::Not(testing::IsEmpty()))
        << row.line;
    const Result rest = find_check(passive_checks(), "host.kmsg")->run(evidence);
    ASSERT_EQ(rest.findings.size(), 1U) << row.line << describe(rest);
    EXPECT_THAT(rest.findings[0].message, HasSubstr("something new"));
    EXPECT_EQ(run("host.kmsg").findings.size(), 2U) << "alone it knows of no other check";
  }
  EXPECT_EQ(passive_checks().back().code, "host.kmsg") << "the others come before it";
}

}  // namespace
}  // namespace ms::health
