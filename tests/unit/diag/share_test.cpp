// Which cores a process loads, how much memory it takes, and what is made of the numbers it measures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "diag/memory_size.h"
#include "diag/rates.h"
#include "diag/share.h"
#include "diag/works.h"
#include "support/files.h"

namespace ms::diag {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> cores(int first, int count) {
  std::vector<int> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), first);
  return result;
}

slurm::Launch local(int rank, int size) { return {.launcher = "srun", .local_rank = rank, .local_size = size}; }

TEST(Share, AloneTakesAll) {
  const Share share = share_of(cores(0, 8), 8, 0, {});
  EXPECT_EQ(share.cpus.size(), 8U);
  EXPECT_TRUE(share.whole_node);
  EXPECT_DOUBLE_EQ(share.part(), 1);
}

TEST(Share, OfAJobOnPartOfANode) {
  const Share share = share_of(cores(4, 4), 64, 4, {});
  EXPECT_THAT(share.cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_FALSE(share.whole_node);
}

TEST(Share, OneMaskForAllIsCutUp) {
  std::vector<int> all;
  for (int rank = 0; rank < 3; ++rank) {
    const Share share = share_of(cores(0, 8), 8, 8, local(rank, 3));
    EXPECT_TRUE(share.whole_node);
    EXPECT_GE(share.cpus.size(), 2U);
    all.insert(all.end(), share.cpus.begin(), share.cpus.end());
  }
  EXPECT_EQ(all, cores(0, 8));
}

TEST(Share, BoundProcessesKeepTheirMasks) {
  const Share share = share_of(cores(4, 4), 8, 8, local(1, 2));
  EXPECT_THAT(share.cpus, ElementsAre(4, 5, 6, 7));
  EXPECT_TRUE(share.whole_node);
  EXPECT_DOUBLE_EQ(share.part(), 0.5);
}

TEST(Share, TwoProcessesOfASmallJobShareItsMask) {
  // Four cores of 64 for both: without the job's number they would look bound.
  const Share share = share_of(cores(8, 4), 64, 4, local(1, 2));
  EXPECT_THAT(share.cpus, ElementsAre(10, 11));
  EXPECT_FALSE(share.whole_node);
}

TEST(Share, MoreProcessesThanCoresHaveOneEach) {
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(share_of(cores(0, 2), 2, 0, local(rank, 5)).cpus.size(), 1U) << rank;
}

struct RateRow {
  double measured, expected;
  health::Outcome outcome;
};

TEST(Rates, AreJudged) {
  const Share share = share_of(cores(0, 2), 2, 0, {});
  for (const RateRow& row : {RateRow{10, -1, health::Outcome::pass}, RateRow{75, 100, health::Outcome::pass},
                             RateRow{74, 100, health::Outcome::warn}, RateRow{50, 100, health::Outcome::warn},
                             RateRow{49, 100, health::Outcome::critical}, RateRow{0, 0, health::Outcome::pass}}) {
    const health::Result result =
        judge_rates({{"triad", row.measured, row.expected, "GB/s"}}, 0.75, share, Scope::cores, "how");
    EXPECT_EQ(result.outcome, row.outcome) << row.measured << " of " << row.expected;
    EXPECT_THAT(result.note, HasSubstr("triad"));
    if (result.outcome == health::Outcome::pass) continue;
    ASSERT_EQ(result.findings.size(), 1U);
    EXPECT_DOUBLE_EQ(result.findings[0].measured.value(), row.measured);
    EXPECT_DOUBLE_EQ(result.findings[0].limit.value(), row.outcome == health::Outcome::warn ? 75 : 50);
  }
}

TEST(Rates, APartOfTheNodeAnswersForItsPart) {
  const Share half = share_of(cores(0, 8), 8, 8, local(0, 2));
  EXPECT_EQ(judge_rates({{"x", 40, 100, "GB/s"}}, 0.75, half, Scope::cores, "how").outcome, health::Outcome::pass);
  EXPECT_EQ(judge_rates({{"x", 36, 100, "GB/s"}}, 0.75, half, Scope::cores, "how").outcome, health::Outcome::warn);
  EXPECT_EQ(judge_rates({{"x", 40, 100, "GB/s"}}, 0.75, half, Scope::whole, "how").outcome, health::Outcome::critical);
}

TEST(Rates, AreNotJudgedWhereOthersHaveCores) {
  const Share some = share_of(cores(0, 4), 64, 4, {});
  const health::Result result = judge_rates({{"x", 1, 100, "GB/s"}}, 0.75, some, Scope::cores, "how");
  EXPECT_EQ(result.outcome, health::Outcome::pass);
  EXPECT_THAT(result.note, HasSubstr("not judged"));
  EXPECT_EQ(judge_rates({{"x", 1, 100, "GB/s"}}, 0.75, some, Scope::whole, "how").outcome, health::Outcome::critical);
}

TEST(Rates, TheWorstOfSeveralCounts) {
  const Share share = share_of(cores(0, 2), 2, 0, {});
  const health::Result result =
      judge_rates({{"eth0", 100, 100, "Gbit/s"}, {"eth1", 10, 100, "Gbit/s"}}, 0.75, share, Scope::whole, "how");
  EXPECT_EQ(result.outcome, health::Outcome::critical);
  ASSERT_EQ(result.findings.size(), 1U);
  EXPECT_EQ(result.findings[0].entity, "eth1");
}

class FakeFiles : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(directory_ + path).parent_path());
    std::ofstream(directory_ + path) << text << "\n";
  }
  void cache(int cpu, int index, const std::string& level, const std::string& size, const std::string& shared) const {
    const std::string at = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index);
    write(at + "/level", level);
    write(at + "/size", size);
    write(at + "/shared_cpu_list", shared);
  }
  Sysroot root() const { return Sysroot(directory_); }

  const test::TempDir temporary_;
  const std::string& directory_ = temporary_.path();
};

using MemorySize = FakeFiles;

TEST_F(MemorySize, CachesAreCountedOnceForAllThatShareThem) {
  for (int cpu = 0; cpu < 4; ++cpu) {
    cache(cpu, 0, "1", "32K", std::to_string(cpu));
    cache(cpu, 1, "3", "32768K", cpu < 2 ? "0-1" : "2-3");
    cache(cpu, 2, "2", "1024K", std::to_string(cpu));
  }
  write("/sys/devices/system/cpu/cpufreq/x", "no core");
  const Caches caches = last_level_caches(root());
  EXPECT_EQ(caches.reported_bytes, 64 * kMiB);
  EXPECT_EQ(caches.counted_bytes, 64 * kMiB);
  EXPECT_EQ(caches.note(), "");
}

TEST_F(MemorySize, WithoutCachesThereAreNone) { EXPECT_EQ(last_level_caches(root()).reported_bytes, 0); }

// Two cores of a socket with 480 MiB, and what tells them from a whole machine.
TEST_F(MemorySize, TheCacheOfAWholeSocketIsNotThatOfTwoCores) {
  for (int cpu = 0; cpu < 2; ++cpu) cache(cpu, 3, "3", "491520K", "0-1");
  const auto counted = [&] { return last_level_caches(root()).counted_bytes; };
  EXPECT_EQ(counted(), 192 * kMiB);  // no core has more than 96 MiB
  write("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu hypervisor sse2");
  EXPECT_EQ(counted(), 32 * kMiB);
  write("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu hypervisors");
  EXPECT_EQ(counted(), 192 * kMiB);
  write("/proc/meminfo", "MemTotal: 4194304 kB");
  EXPECT_EQ(counted(), 64 * kMiB);  // a whole machine has 64 times as much memory
  EXPECT_EQ(last_level_caches(root()).reported_bytes, 480 * kMiB);
  EXPECT_THAT(last_level_caches(root()).note(), HasSubstr("480.0 MiB"));
}

TEST(TriadArrays, AreFourTimesTheCachesWhereThereIsRoom) {
  const auto most = [](std::int64_t cache_bytes, std::int64_t free_bytes, double part) {
    return triad_work(cache_bytes, free_bytes, part).value().most;
  };
  EXPECT_EQ(most(32 * kMiB, 20'000 * kMiB, 1), 128 * kMiB);
  EXPECT_EQ(most(32 * kMiB, 20'000 * kMiB, 0.5), 64 * kMiB);
  EXPECT_EQ(most(32 * kMiB, 600 * kMiB, 1), 50 * kMiB);  // a twelfth
  EXPECT_EQ(most(0, 20'000 * kMiB, 1), 16 * kMiB);
  EXPECT_EQ(triad_work(32 * kMiB, 20'000 * kMiB, 1)->least, 32 * kMiB);  // smaller ones would be in the caches
  EXPECT_FALSE(triad_work(32 * kMiB, 300 * kMiB, 1));
  EXPECT_FALSE(triad_work(0, 0, 1));
}

// ---- other programs

using Beside = FakeFiles;

TEST_F(Beside, WhatOthersTakeIsSeen) {
  // cpuN user nice system idle iowait irq softirq steal, in hundredths of a second.
  write("/proc/stat", "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 0 0 0 0 0 0 0 0\ncpu1 100 0 0 0 0 0 0 0 0 0");
  CpuUse before = cpu_use(root());
  EXPECT_EQ(before.busy_s.size(), 2U);
  EXPECT_DOUBLE_EQ(before.busy_s.at(0), 1);
  write("/proc/stat", "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 500 50 150 0 70 80 90 0 0 0\ncpu1 350 0 0 350 0 0 0 50 0 0");
  CpuUse now = cpu_use(root());
  before.at_s = 0;
  now.at_s = 10;
  before.own_s = 0;
  now.own_s = 4;  // of six seconds on core 0 and three on core 1
  EXPECT_DOUBLE_EQ(others_between(before, now, {0, 1}).all, 5.0 / 20);
  EXPECT_DOUBLE_EQ(others_between(before, now, {0, 1}).worst, 0.4);
  EXPECT_DOUBLE_EQ(others_between(before, now, {1}).all, 0);  // we may have been elsewhere
  EXPECT_DOUBLE_EQ(others_between(before, before, {0, 1}).all, 0);
  EXPECT_DOUBLE_EQ(others_between(before, now, {7}).worst, 0);
}

// A busy node is no slow one; and what no other program explains stays a finding.
TEST_F(Beside, ALowNumberBesideOtherProgramsIsNotMeasured) {
  struct BesideRow {
    Others others;
    Scope scope;
    double measured;
    health::Outcome outcome;
    std::size_t numbers;  // that may be compared with those of other nodes
  };
  const BesideRow rows[] = {
      {{.all = 0, .worst = 0}, Scope::cores, 60, health::Outcome::warn, 1},
      {{.all = 0.05, .worst = 0.2}, Scope::cores, 60, health::Outcome::warn, 1},
      {{.all = 0.5, .worst = 0.5}, Scope::cores, 60, health::Outcome::skip, 0},
      {{.all = 0.5, .worst = 0.5}, Scope::cores, 90, health::Outcome::pass, 0},
      {{.all = 0.05, .worst = 0.5}, Scope::cores, 20, health::Outcome::skip, 0},  // of many cores one
      {{.all = 0.05, .worst = 0.5}, Scope::whole, 20, health::Outcome::critical, 1},
      {{.all = 0.5, .worst = 0.5}, Scope::cores, 15, health::Outcome::warn, 1},
      {{.all = 0.5, .worst = 0.5}, Scope::cores, 1, health::Outcome::critical, 1},
      {{.all = 0.5, .worst = 0.5}, Scope::device, 60, health::Outcome::warn, 1},
      {{.all = 1, .worst = 1}, Scope::cores, 1, health::Outcome::skip, 0}};
  Share share = share_of(cores(0, 2), 2, 0, {});
  for (const BesideRow& row : rows) {
    share.others = [&] { return row.others; };
    const health::Result result = judge_rates({{"triad", row.measured, 100, "GB/s"}}, 0.75, share, row.scope, "how");
    EXPECT_EQ(result.outcome, row.outcome) << row.measured << " beside " << row.others.all;
    EXPECT_EQ(result.measured.size(), row.numbers) << row.measured << " beside " << row.others.all;
    EXPECT_THAT(result.note, HasSubstr("triad"));
  }
}

}  // namespace
}  // namespace ms::diag
