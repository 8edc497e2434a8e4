// host.memory, host.cpus, host.clock, host.space.
#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "fake_node.h"

namespace ms::health {
namespace {

using ::testing::HasSubstr;

class HostMemory : public FakeNode {
 protected:
  void memory(std::int64_t mib, const std::string& corrupted = "0") {
    put("/proc/meminfo", "MemTotal:       " + std::to_string(mib * 1024) +
                             " kB\nMemFree:  1 kB\nHardwareCorrupted:  " + corrupted + " kB");
  }
};
class HostCpus : public FakeNode {
 protected:
  void cpus(const std::string& present, const std::string& online) {
    put("/sys/devices/system/cpu/present", present);
    put("/sys/devices/system/cpu/online", online);
  }
};
class HostClock : public FakeNode {
 protected:
  Result with(const std::string& numbers) {
    put("/run/fake/adjtimex", numbers);
    return run("host.clock");
  }
};
class HostSpace : public FakeNode {};

TEST_F(HostMemory, ComparesWithTheExpectation) {
  policy.expect.memory_mib = 100000;
  policy.limits.memory_missing_percent = 3;
  const std::pair<std::int64_t, Outcome> rows[] = {
      {100000, Outcome::pass},    {200000, Outcome::pass},    {97000, Outcome::pass},
      {96999, Outcome::critical}, {50000, Outcome::critical},
  };
  for (const auto& [mib, outcome] : rows) {
    memory(mib);
    EXPECT_OUTCOME(run("host.memory"), outcome) << mib;
  }
  const Finding finding = run("host.memory").findings.at(0);
  EXPECT_EQ(finding.measured, 50000.0);
  EXPECT_EQ(finding.limit, 100000.0);
  EXPECT_EQ(finding.unit, "MiB");
}

TEST_F(HostMemory, WithoutAnExpectationWhatIsPluggedInCounts) {
  memory(60000);
  EXPECT_OUTCOME(run("host.memory"), Outcome::skip);
  put("/sys/devices/system/edac/mc/mc0/size_mb", "32768");
  put("/sys/devices/system/edac/mc/mc1/size_mb", "32768");
  EXPECT_OUTCOME(run("host.memory"), Outcome::warn);  // 60000 of 65536, 8.4% less
  memory(64000);
  EXPECT_OUTCOME(run("host.memory"), Outcome::pass);
}

TEST_F(HostMemory, PoisonedPagesWarn) {
  policy.expect.memory_mib = 1000;
  memory(1000, "8");
  const Result result = run("host.memory");
  EXPECT_OUTCOME(result, Outcome::warn);
  EXPECT_THAT(result.findings.at(0).message, HasSubstr("8 KiB"));
}

TEST_F(HostMemory, SkipsWhatItCannotRead) {
  policy.expect.memory_mib = 1000;
  EXPECT_OUTCOME(run("host.memory"), Outcome::skip);
  put("/proc/meminfo", "MemTotal: many kB");
  EXPECT_OUTCOME(run("host.memory"), Outcome::skip);
}

TEST_F(HostMemory, WhatSomethingHoldsIsSeen) {
  put("/proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 60000 kB");
  EXPECT_OUTCOME(run("host.free"), Outcome::pass);
  put("/proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 40000 kB");
  EXPECT_OUTCOME(run("host.free"), Outcome::warn);
  policy.limits.memory_free_percent = 3;
  EXPECT_OUTCOME(run("host.free"), Outcome::pass);
  put("/proc/meminfo", "MemTotal: 1000000 kB");
  EXPECT_OUTCOME(run("host.free"), Outcome::skip);
}

TEST_F(HostCpus, JudgesNumbers) {
  struct Row {
    std::int64_t expected;
    std::string present, online, smt;
    Outcome outcome;
  };
  const Row rows[] = {
      {-1, "0-127", "0-127", "on", Outcome::pass},
      {-1, "0", "0", "notsupported", Outcome::pass},
      {-1, "0-127", "0-63,65-127", "on", Outcome::warn},
      {-1, "0-127", "0-63", "off", Outcome::pass},  // hyper-threads switched off
      {-1, "0-127", "0-63", "forceoff", Outcome::pass},
      {128, "0-127", "0-127", "on", Outcome::pass},
      {128, "0-255", "0-127", "off", Outcome::pass},
      {128, "0-127", "0-126", "on", Outcome::warn},
      {128, "0-63", "0-63", "on", Outcome::critical},
      {-1, "0-127", "all of them", "on", Outcome::skip},
      {-1, "7-0", "0", "on", Outcome::skip},
  };
  for (const Row& row : rows) {
    policy.expect.cpus = row.expected;
    cpus(row.present, row.online);
    put("/sys/devices/system/cpu/smt/control", row.smt);
    EXPECT_OUTCOME(run("host.cpus"), row.outcome) << row.present << " " << row.online << " " << row.smt;
  }
}

TEST_F(HostCpus, SkipsWithoutSysfs) { EXPECT_OUTCOME(run("host.cpus"), Outcome::skip); }

TEST_F(HostClock, JudgesNumbers) {
  policy.limits.clock_error_s = 1;
  EXPECT_OUTCOME(with("status 8193\nmaxerror 25000\nesterror 12"), Outcome::pass);
  EXPECT_OUTCOME(with("status 1\nmaxerror 1000000\nesterror 1000000"), Outcome::pass);  // exactly the limit
  EXPECT_OUTCOME(with("status 64\nmaxerror 16000000\nesterror 16000000"), Outcome::warn);
  EXPECT_THAT(with("status 65\nmaxerror 10").findings.at(0).message, HasSubstr("nothing keeps"));

  const Finding possible = with("status 1\nmaxerror 1500000\nesterror 12").findings.at(0);
  EXPECT_EQ(possible.measured, 1.5);
  EXPECT_THAT(possible.message, HasSubstr("possible"));
  const Finding estimated = with("status 1\nmaxerror 9000000\nesterror 2000000").findings.at(0);
  EXPECT_EQ(estimated.measured, 2.0);
  EXPECT_THAT(estimated.message, HasSubstr("estimated"));
}

TEST_F(HostClock, SkipsWithoutNumbers) { EXPECT_OUTCOME(run("host.clock"), Outcome::skip); }

TEST_F(HostClock, AsksTheRealKernel) {
  policy.paths.sysroot = "/";
  policy.limits.clock_error_s = 1e9;
  const Result result = run("host.clock");
  EXPECT_THAT(result.outcome, ::testing::AnyOf(Outcome::pass, Outcome::warn, Outcome::skip)) << describe(result);
}

TEST_F(HostSpace, TheLimitDecides) {
  EXPECT_OUTCOME(run("host.space"), Outcome::pass);  // an empty root: "/" itself is there
  make_directory("/tmp");
  policy.limits.space_free_percent = 0;
  EXPECT_OUTCOME(run("host.space"), Outcome::pass);
  policy.limits.space_free_percent = 100.5;
  const Result full = run("host.space");
  EXPECT_OUTCOME(full, Outcome::warn);
  for (const Finding& finding : full.findings) EXPECT_EQ(finding.entity, "/tmp");  // one file system, told once
}

TEST_F(HostSpace, SeesAFullFileSystem) {
  make_directory("/dev/shm");
  if (!enter_own_mounts() || ::mount("none", path("/dev/shm").c_str(), "tmpfs", 0, "size=1m,nr_inodes=100") != 0) {
    GTEST_SKIP() << "may not mount a tmpfs";
  }
  policy.limits.space_free_percent = 5;
  const Result empty = run("host.space");
  std::ofstream(path("/dev/shm/full")) << std::string(1 << 20, 'x');
  const Result bytes = run("host.space");
  ::mount(nullptr, path("/dev/shm").c_str(), nullptr, MS_REMOUNT | MS_RDONLY, "");
  const Result image = run("host.space");  // images are full by nature
  ::mount(nullptr, path("/dev/shm").c_str(), nullptr, MS_REMOUNT, "");
  remove("/dev/shm/full");
  for (int i = 0; i < 100; ++i) std::ofstream(path("/dev/shm/" + std::to_string(i)));
  const Result inodes = run("host.space");
  ::umount(path("/dev/shm").c_str());

  const auto of_shm = [](const Result& result) {
    std::string text;
    for (const Finding& finding : result.findings) text += finding.entity == "/dev/shm" ? finding.message : "";
    return text;
  };
  EXPECT_EQ(of_shm(empty), "");
  EXPECT_EQ(of_shm(image), "");
  EXPECT_THAT(of_shm(bytes), HasSubstr("of its bytes are free"));
  EXPECT_THAT(of_shm(inodes), HasSubstr("of its inodes are free"));
}

TEST_F(HostSpace, SkipsWhereNothingIsThere) {
  remove("");
  EXPECT_OUTCOME(run("host.space"), Outcome::skip);
}

class HostStrays : public FakeNode {
 protected:
  HostStrays() { make_directory("/sys/fs/cgroup/system.slice/slurmstepd.scope"); }
  void process(int user, const std::string& cgroup, int kib = 2000) {
    put("/proc/77/status", fmt::format("Uid:\t{0}\t{0}\t{0}\t{0}\nVmRSS:\t   {1} kB", user, kib));
    put("/proc/77/cgroup", "0::" + cgroup);
    used(9000);
  }
  void used(long ticks) {
    put("/proc/77/next", fmt::format("77 (bash) S 1 1 1 0 -1 4194304 1 2 3 4 {} 0 0 0", ticks));
    std::filesystem::rename(path("/proc/77/next"), path("/proc/77/stat"));  // a look meets a whole file
  }
};

constexpr const char* kSession = "/user.slice/user-1234.slice/session-4.scope";

TEST_F(HostStrays, OnlyProcessesOfUsersAreStrays) {
  constexpr int kLarge_kib = 2000000;
  const struct {
    int user;
    const char* cgroup;
    Outcome outcome;
  } rows[] = {
      {1234, kSession, Outcome::warn},
      {1234, "/system.slice/slurmstepd.scope/job_5/step_0", Outcome::pass},
      {1234, "/system.slice/exporter.service", Outcome::pass},
      {1234, "/system.slice/sshd.service", Outcome::warn},  // without pam_systemd
      {1234, "/system.slice/system-sshd.slice/sshd@1.service", Outcome::warn},
      {999, kSession, Outcome::pass},
      {61184, kSession, Outcome::pass},  // systemd's DynamicUser=
      {65519, kSession, Outcome::pass},
      {65520, kSession, Outcome::warn},
      {65534, kSession, Outcome::pass},
  };
  for (const auto& row : rows) {
    process(row.user, row.cgroup, kLarge_kib);
    EXPECT_OUTCOME(run("host.strays"), row.outcome) << row.user << " " << row.cgroup;
  }
  put("/etc/login.defs", "# of users\nUID_MIN\t\t 5000");
  process(4999, kSession, kLarge_kib);
  EXPECT_OUTCOME(run("host.strays"), Outcome::pass);
  process(5000, kSession, kLarge_kib);
  EXPECT_OUTCOME(run("host.strays"), Outcome::warn);
}

TEST_F(HostStrays, BusyIsWhatTakesTimeNow) {
  process(1234, kSession);
  EXPECT_OUTCOME(run("host.strays"), Outcome::pass);  // a minute and a half, long ago
  // Each look reads more time than the one before, unless the thread had no turn between them: then the next does.
  std::atomic<bool> found = false;
  std::jthread works([&] {
    for (long ticks = 9000; !found; ticks += 9000) used(ticks);
  });
  for (int i = 0; i < 200 && !found; ++i) found = run("host.strays").outcome == Outcome::warn;
  EXPECT_TRUE(found.exchange(true));
}

}  // namespace
}  // namespace ms::health
