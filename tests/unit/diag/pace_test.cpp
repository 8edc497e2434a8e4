// Active checks bound themselves: on machines from one core to 256, with caches from 2 MiB to 1 GiB, from hardly any
// speed to more than there is, they end before their deadline with a number or without one.
#include "diag/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>

#include "../base/fake_root.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/host_memory.h"
#include "base/text.h"
#include "diag/memory_size.h"
#include "diag/works.h"
#include "health/checks/registry.h"
#include "health/commands/extension.h"
#include "health/run/runner.h"

namespace ms::diag {
namespace {

using ::testing::HasSubstr;

// ---- the pace alone

TEST(Pace, GrowsToWhatIsWantedAndRepeatsThat) {
  Pace pace({.first = 1, .least = 10, .most = 100, .seconds = 1, .rounds = 2});
  std::vector<std::int64_t> sizes;
  while (pace.more()) {
    sizes.push_back(pace.size());
    pace.ended(0.003 * static_cast<double>(pace.size()), 1000);
  }
  EXPECT_THAT(sizes, testing::ElementsAre(1, 4, 16, 64, 100, 100, 100, 100, 100));
  EXPECT_TRUE(pace.is_measured());
  EXPECT_FALSE(pace.is_less());
  EXPECT_EQ(pace.rounds(), 4);
  EXPECT_DOUBLE_EQ(pace.total_s(), 1.2);
  EXPECT_DOUBLE_EQ(pace.best_s(), 0.3);
}

TEST(Pace, StaysSmallerWhereMoreWouldNotEndInTime) {
  Pace pace({.first = 1, .least = 10, .most = 100, .seconds = 1, .rounds = 2});
  pace.ended(0.1, 100);
  EXPECT_EQ(pace.size(), 4);
  pace.ended(0.4, 100);
  EXPECT_EQ(pace.size(), 16);
  pace.ended(1.6, 25);  // of 64, three rounds of 6.4 s would follow; of 41, so many of 4.1 s, which is half
  EXPECT_EQ(pace.size(), 41);
  pace.ended(4.1, 20);
  EXPECT_EQ(pace.size(), 41);
  EXPECT_TRUE(pace.is_counted());
  pace.ended(4, 16);
  pace.ended(4.5, 12);
  EXPECT_FALSE(pace.more());
  EXPECT_TRUE(pace.is_measured());
  EXPECT_TRUE(pace.is_less());
  EXPECT_DOUBLE_EQ(pace.total_s(), 8.5);
}

// The least size is tried where it is expected to end in time, however little larger it is.
TEST(Pace, TakesTheStepToTheLeastSize) {
  Pace pace({.first = 1, .least = 10, .most = 100});
  pace.ended(0.1, 100);
  pace.ended(0.4, 100);
  pace.ended(1.6, 100);
  EXPECT_EQ(pace.size(), 64);
  Pace other({.first = 8, .least = 12, .most = 100});
  other.ended(1, 6.1);
  EXPECT_EQ(other.size(), 8);  // a multiple of the first one
  Pace another({.first = 1, .least = 5, .most = 100});
  another.ended(1, 100);
  another.ended(4, 21);
  EXPECT_EQ(another.size(), 5);
}

// The first round of a size also touches memory.
TEST(Pace, FreshRoundsCostMore) {
  Pace pace({.first = 1, .least = 1, .most = 1, .fresh = 4, .seconds = 1, .rounds = 3, .tail = 1});
  pace.ended(10, 6);
  EXPECT_TRUE(pace.more());
  pace.ended(1, 5);
  pace.ended(1, 4);
  pace.ended(1, 3);
  EXPECT_TRUE(pace.is_measured());
}

TEST(Pace, TooFewRoundsOrTooSmallOnesAreNoMeasurement) {
  Pace small({.first = 1, .least = 10, .most = 100});
  small.ended(5, 10);
  EXPECT_FALSE(small.more());
  EXPECT_THROW(small.require_measured(), health::NotMeasured);
  Pace few({.first = 10, .least = 10, .most = 10, .seconds = 1, .rounds = 3, .tail = 1});
  few.ended(1, 10);
  EXPECT_TRUE(few.more());
  few.ended(4, 7);  // now another program came
  EXPECT_FALSE(few.more());
  EXPECT_THROW(few.require_measured(), health::NotMeasured);
}

TEST(Pace, CostsGrowWithThePower) {
  Pace cubes({.first = 100, .least = 100, .most = 400, .power = 3});
  cubes.ended(1, 31);  // the next ones take 8 s, and twice that is more than half
  EXPECT_EQ(cubes.size(), 100);
  cubes.ended(1, 30);
  EXPECT_TRUE(cubes.is_measured());
}

// ---- machines

constexpr int kCores[] = {1, 2, 16, 64, 256};
constexpr std::int64_t kCaches[] = {2 * kMiB, 16 * kMiB, 32 * kMiB, 256 * kMiB, 480 * kMiB, 1024 * kMiB};

// A machine whose cores share one cache, with 8 GiB a core, at least 16.
class Machine {
 public:
  explicit Machine(int cores) : cores_(cores) {
    for (int cpu = 0; cpu < cores; ++cpu) {
      const std::string at = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index3/", cpu);
      fake_.write(at + "level", "3\n");
      fake_.write(at + "shared_cpu_list", fmt::format("0-{}\n", cores - 1));
    }
    const std::int64_t memory_kib = std::max<std::int64_t>(16, 8 * cores) << 20;
    fake_.write("/proc/meminfo", fmt::format("MemTotal: {0} kB\nMemAvailable: {0} kB\n", memory_kib));
    free_bytes_ = host_memory(fake_.root()).free_bytes;
    set(32 * kMiB, false);
  }
  void set(std::int64_t cache_bytes, bool is_virtual) {
    fake_.write("/sys/devices/system/cpu/cpu0/cache/index3/size", fmt::format("{}K\n", cache_bytes >> 10));
    fake_.write("/proc/cpuinfo", is_virtual ? "flags : fpu hypervisor\n" : "flags : fpu\n");
    triad_ = triad_work(last_level_caches(fake_.root()).counted_bytes, free_bytes_, 1).value();
  }
  int cores() const { return cores_; }
  std::int64_t free_bytes() const { return free_bytes_; }
  const Work& triad() const { return triad_; }

 private:
  int cores_;
  FakeRoot fake_;
  std::int64_t free_bytes_;
  Work triad_;
};

// The work of a check on a number of cores, and what a round moves, or computes, at a size that is new or not.
struct PacedCheck {
  std::string_view code;
  Work (*work)(const Machine& machine, int cores);
  double (*units)(double size, double cores, bool is_new);
};
double ranks(double cores) { return std::clamp(std::floor(cores / 2) * 2, 2.0, static_cast<double>(kMostRanks)); }
constexpr double kSoak_s = 60;

const PacedCheck kRows[] = {
    // Three arrays are touched and passed over.
    {"perf.memory", [](const Machine& machine, int) { return machine.triad(); },
     [](double size, double, bool is_new) { return (is_new ? 6 : 3) * size; }},
    {"perf.a2a", [](const Machine&, int) { return kA2aWork; },
     [](double size, double cores, bool is_new) {
       return (is_new ? 2 : 1) * ranks(cores) * (ranks(cores) - 1) * size;
     }},
    {"perf.procs", [](const Machine&, int) { return kProcsWork; },
     [](double size, double cores, bool is_new) {
       const double all = std::clamp(cores, 2.0, static_cast<double>(kMostRanks));
       return (is_new ? 4 : 2) * all * all * size;
     }},
    {"perf.reduce", [](const Machine&, int) { return kReduceWork; },
     [](double size, double, bool) { return 4 * size; }},
    {"perf.gemm", [](const Machine&, int cores) { return gemm_work(static_cast<std::size_t>(cores)); },
     [](double size, double, bool is_new) { return 2 * size * size * size + (is_new ? 12 * size * size : 0); }},
    // Of each core.
    {"perf.bits", [](const Machine&, int) { return bits_work(4); },
     [](double, double, bool) { return 4 * std::pow(384, 3); }},
    {"soak.cpu", [](const Machine&, int) { return bits_work(kSoak_s); },
     [](double, double, bool) { return 4 * std::pow(384, 3); }},
    // Six patterns are written and read.
    {"soak.memory",
     [](const Machine& machine, int cores) {
       return soak_memory_work(machine.free_bytes() / 2 / cores, kSoak_s, false);
     },
     [](double size, double cores, bool) { return 12 * cores * size; }},
};

struct Done {
  Pace pace;
  double elapsed_s = 0, deadline_s = 0;
};

// What the check does where `rate` units are done in a second, which falls to `later` of that once the size is found.
Done done_by(const PacedCheck& row, const Machine& machine, double rate, double later = 1) {
  const int cores = machine.cores();
  const health::Check& check = *health::find_check(ms_diag_extension()->checks(), row.code);
  const health::Asked asked{.soak_s = kSoak_s};
  FakeClock clock;
  const health::Policy policy;
  health::Evidence evidence(policy, 0, 0, {}, asked);
  Done done{.pace = Pace(row.work(machine, cores)), .deadline_s = check.deadline_s + (check.soaks ? kSoak_s : 0)};
  evidence.begin_check(clock, work_s(check, asked, done.deadline_s));
  double round_s = 0;
  const bool twice = row.code == "perf.gemm";  // fp32 and bf16
  for (int type = 0; type < (twice ? 2 : 1); ++type) {
    done.pace = Pace(row.work(machine, cores));
    while (done.pace.more()) {
      const bool is_new = !done.pace.is_counted();
      round_s = row.units(static_cast<double>(done.pace.size()), cores, is_new) / (is_new ? rate : rate * later);
      clock.advance_s(round_s);
      done.pace.ended(round_s, evidence.left_s() / (twice && type == 0 ? 2 : 1));
    }
    if (!done.pace.is_measured()) break;
  }
  if (done.pace.is_measured()) clock.advance_s(done.pace.work().tail * round_s);
  done.elapsed_s = clock.now_s();
  return done;
}

TEST(Grid, EveryCheckEndsBeforeItsDeadlineOnEveryMachine) {
  int measured = 0, all = 0;
  for (const int cores : kCores) {
    Machine machine(cores);
    for (const std::int64_t cache_bytes : kCaches) {
      for (const bool is_virtual : {false, true}) {
        machine.set(cache_bytes, is_virtual);
        for (const PacedCheck& row : kRows) {
          for (const double rate : {0.05e9, 0.2e9, 1e9, 5e9, 20e9, 200e9}) {
            for (const double later : {1.0, 0.5}) {
              const Done done = done_by(row, machine, rate, later);
              const std::string where = fmt::format("{} on {} cores, {} of cache, {} at {:g}/s, later {:g}", row.code,
                                                    cores, format_size(static_cast<double>(cache_bytes)),
                                                    is_virtual ? "virtual" : "real", rate, later);
              EXPECT_LT(done.elapsed_s, done.deadline_s) << where;
              ++all;
              measured += done.pace.is_measured() ? 1 : 0;
              // Nothing but a number, or none.
              if (done.pace.is_measured()) continue;
              EXPECT_THROW(done.pace.require_measured(), health::NotMeasured) << where;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(measured, all / 2);
  EXPECT_LT(measured, all);
}

// The machine on which perf.memory took too long: 2 cores that touch half a gigabyte a second, 480 MiB of cache.
TEST(Grid, TwoCoresOfALargeSocketAreMeasured) {
  Machine machine(2);
  machine.set(480 * kMiB, true);
  const Done done = done_by(kRows[0], machine, 1e9);
  EXPECT_TRUE(done.pace.is_measured());
  EXPECT_FALSE(done.pace.is_less());
  EXPECT_EQ(done.pace.size(), 128 * kMiB);
  EXPECT_LT(done.elapsed_s, 8);
}

// ---- the checks themselves, with no time left

class NoTime : public testing::TestWithParam<std::string_view> {};

TEST_P(NoTime, IsNotMeasured) {
  const health::Policy policy;
  FakeClock clock;
  health::Evidence evidence(policy, 1e9, 0, {}, {.soak_s = 0, .memory_bytes = 8 * kMiB});
  evidence.begin_check(clock, 0);
  const health::Check& check = *health::find_check(ms_diag_extension()->checks(), GetParam());
  try {
    const health::Result result = check.run(evidence);
    EXPECT_EQ(result.outcome, health::Outcome::skip) << result.note;
    EXPECT_TRUE(result.findings.empty());
    EXPECT_THAT(result.note, HasSubstr("not measured"));
  } catch (const health::NotMeasured&) {}
}

INSTANTIATE_TEST_SUITE_P(Checks, NoTime,
                         testing::Values("perf.memory", "perf.gemm", "perf.bits", "perf.a2a", "perf.procs", "soak.cpu",
                                         "soak.memory"));

// ---- the manual

// Cores that each move 4 GB/s and compute 20 GFLOP/s; all of them together move at most 200 GB/s.
double usual_rate(const PacedCheck& row, int cores) {
  const std::string_view code = row.code;
  if (code == "perf.bits" || code == "soak.cpu") return 20e9;
  if (code == "perf.gemm") return 20e9 * cores;
  return std::min(200e9,
                  4e9 * std::min(cores, code.starts_with("perf.a2a") || code == "perf.procs" ? kMostRanks : cores));
}

std::string cell(const PacedCheck& row, const Machine& machine) {
  const Done done = done_by(row, machine, usual_rate(row, machine.cores()));
  if (!done.pace.is_measured()) return "not measured";
  const auto size = static_cast<double>(done.pace.size());
  const std::string what = row.code == "perf.gemm"      ? fmt::format("{}", size)
                           : done.pace.work().most == 1 ? std::to_string(done.pace.rounds())
                                                        : format_size(size);
  return fmt::format("{}, {:.1f} s", what, done.elapsed_s);
}

TEST(Grid, TheManualSaysWhatChecksDo) {
  std::string memory, others;
  std::deque<Machine> machines(std::begin(kCores), std::end(kCores));
  const auto add_row = [&](std::string& table, const std::string& name, const PacedCheck& row) {
    table += ".It " + name;
    for (const Machine& machine : machines) table += " Ta " + cell(row, machine);
    table += "\n";
  };
  for (const PacedCheck& row : kRows) {
    if (row.code != "perf.memory") add_row(others, std::string(row.code), row);
  }
  for (const bool is_virtual : {false, true}) {
    for (const std::int64_t cache_bytes : kCaches) {
      for (Machine& machine : machines) machine.set(cache_bytes, is_virtual);
      add_row(memory, format_size(static_cast<double>(cache_bytes)) + (is_virtual ? ", virtual" : ""), kRows[0]);
    }
  }
  const std::string page = read_file(std::filesystem::path(MS_SOURCE_DIR) / "man/ms-performance.7");
  EXPECT_NE(page.find(memory), std::string::npos) << memory;
  EXPECT_NE(page.find(others), std::string::npos) << others;
}

}  // namespace
}  // namespace ms::diag
