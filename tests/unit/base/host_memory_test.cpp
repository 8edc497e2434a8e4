// What the kernel and control groups of either version say about memory, under a fake root.
#include "base/host_memory.h"

#include <gtest/gtest.h>

#include "fake_root.h"

namespace ms {
namespace {

constexpr const char* kMeminfo = "MemTotal: 2000000 kB\nMemFree: 7 kB\nMemAvailable:   1000000 kB";

void expect_memory(const FakeRoot& fake, std::int64_t total_bytes, std::int64_t free_bytes) {
  const HostMemory memory = host_memory(fake.root());
  EXPECT_EQ(memory.total_bytes, total_bytes);
  EXPECT_EQ(memory.free_bytes, free_bytes);
}

TEST(HostMemory, IsWhatTheKernelSays) {
  FakeRoot fake;
  expect_memory(fake, 0, 0);
  fake.write("/proc/meminfo", kMeminfo);
  expect_memory(fake, 2'000'000LL << 10, 1'000'000LL << 10);
}

TEST(HostMemory, TheProcessMayHaveLimitsOfItsOwn) {
  struct Row {
    const char *limits, *status;
    std::optional<std::int64_t> address_bytes;
    std::int64_t stack_bytes;
  };
  constexpr const char* kStatus = "Name:\tms-train\nVmPeak:\t  900 kB\nVmSize:\t   300 kB\n";
  const Row rows[] = {
      {"Max stack size            8388608              unlimited            bytes\n"
       "Max address space         unlimited            unlimited            bytes\n",
       kStatus, std::nullopt, 8 << 20},
      {"Max stack size            unlimited            unlimited            bytes\n"
       "Max address space         1024000              unlimited            bytes\n",
       kStatus, 1024000 - (300 << 10), 2 << 20},
      {"Max address space         1024                 unlimited            bytes\n", kStatus, 0, 2 << 20},
      {"Max address space         1024000              unlimited            bytes\n", "", std::nullopt, 2 << 20},
      {"", kStatus, std::nullopt, 2 << 20},
  };
  for (const Row& row : rows) {
    FakeRoot fake;
    fake.write("/proc/self/limits", row.limits);
    fake.write("/proc/self/status", row.status);
    const HostMemory memory = host_memory(fake.root());
    EXPECT_EQ(memory.address_bytes, row.address_bytes) << row.limits;
    EXPECT_EQ(memory.stack_bytes, row.stack_bytes) << row.limits;
  }
}

TEST(HostMemory, AGroupAboveUsMayLeaveLess) {
  FakeRoot fake;
  fake.write("/proc/meminfo", kMeminfo);
  fake.write("/proc/self/cgroup", "0::/job_7/step_0/task");
  fake.write("/sys/fs/cgroup/job_7/step_0/task/memory.max", "max");
  fake.write("/sys/fs/cgroup/job_7/step_0/task/memory.current", "5");
  fake.write("/sys/fs/cgroup/job_7/memory.max", "70000");
  fake.write("/sys/fs/cgroup/job_7/memory.current", "20000");
  expect_memory(fake, 70000, 50000);
}

TEST(HostMemory, PagesOfFilesAreFree) {
  FakeRoot fake;
  fake.write("/proc/meminfo", kMeminfo);
  fake.write("/proc/self/cgroup", "0::/job_7");
  fake.write("/sys/fs/cgroup/job_7/memory.max", "70000");
  fake.write("/sys/fs/cgroup/job_7/memory.current", "69000");
  fake.write("/sys/fs/cgroup/job_7/memory.stat",
             "anon 9000\nfile 60500\nshmem 500\ninactive_file 40000\nactive_file 20000");
  expect_memory(fake, 70000, 61000);
}

TEST(HostMemory, SoInVersionOne) {
  FakeRoot fake;
  fake.write("/proc/meminfo", kMeminfo);
  fake.write("/proc/self/cgroup", "5:cpu:/elsewhere\n4:memory:/slurm/job_7");
  const std::string group = "/sys/fs/cgroup/memory/slurm/job_7/memory.";
  fake.write(group + "limit_in_bytes", "90000");
  fake.write(group + "usage_in_bytes", "100000");
  expect_memory(fake, 90000, 0);
  fake.write(group + "stat", "active_file 1\ninactive_file 1\ntotal_active_file 30000\ntotal_inactive_file 10000");
  expect_memory(fake, 90000, 30000);
}

}  // namespace
}  // namespace ms
