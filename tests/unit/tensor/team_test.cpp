// The team of an op: every index once, by threads that have a number, with one thread as with many; exceptions; and
// that threads which wait sleep.
#include "tensor/team.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ms::tensor {
namespace {

using namespace std::chrono_literals;

TEST(Team, EveryIndexOnceAndNoMoreThreadsThanParts) {
  for (const int threads : {1, 2, 3, 5}) {
    set_team_threads(threads);
    EXPECT_EQ(team_threads(), threads);
    for (const std::int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
      for (const std::int64_t part : {std::int64_t{1}, std::int64_t{3}, even_part(count), count + 1}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        std::atomic<int> highest = 0;
        share_work(count, part, [&](std::int64_t begin, std::int64_t end, int thread) {
          for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
          int before = highest;
          while (before < thread && !highest.compare_exchange_weak(before, thread)) {}
        });
        const bool once = std::ranges::all_of(seen, [](const std::atomic<int>& n) { return n == 1; });
        EXPECT_TRUE(once) << count << " in parts of " << part << " on " << threads;
        EXPECT_LT(highest, std::max<std::int64_t>(1, std::min<std::int64_t>(threads, (count + part - 1) / part)));
      }
    }
  }
  set_team_threads(1);
}

// Ops follow each other at once, as in a step: none may lose an index to a helper that is late.
TEST(Team, ManyShortOps) {
  set_team_threads(3);
  std::atomic<std::int64_t> sum = 0;
  for (int op = 0; op < 20'000; ++op) share_work(5, 1, [&](std::int64_t begin, std::int64_t, int) { sum += begin; });
  EXPECT_EQ(sum, 20'000 * 10);
  set_team_threads(1);
}

TEST(Team, AnExceptionOfAnyThreadReachesTheCaller) {
  set_team_threads(2);
  for (const std::int64_t bad : {0, 9}) {
    EXPECT_THROW(share_work(10, 1,
                            [&](std::int64_t begin, std::int64_t, int) {
                              if (begin == bad) throw std::runtime_error("bad");
                            }),
                 std::runtime_error);
    std::atomic<int> done = 0;
    share_work(10, 1, [&](std::int64_t, std::int64_t, int) { ++done; });
    EXPECT_EQ(done, 10) << "the team works on";
  }
  set_team_threads(1);
}

TEST(Team, ABodyThatSharesWorkDoesItAlone) {
  set_team_threads(2);
  std::atomic<int> done = 0, others = 0;
  share_work(4, 1, [&](std::int64_t, std::int64_t, int) {
    const std::thread::id caller = std::this_thread::get_id();
    share_work(8, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      done += static_cast<int>(end - begin);
      others += thread != 0 || std::this_thread::get_id() != caller ? 1 : 0;
    });
  });
  EXPECT_EQ(done, 32);
  EXPECT_EQ(others, 0);
  set_team_threads(1);
}

// A helper that has seen no op waits for another number than 0, and numbers wrap. In a thread of its own, whose team
// begins at number 0.
TEST(Team, HelpersLeaveWhateverTheNumberOfTheOp) {
  std::thread([] {
    constexpr int kNumbers = 1 << 19, kRounds = 16;
    set_team_threads(2);
    std::atomic<std::int64_t> sum = 0;
    for (int op = 0; op < kNumbers - kRounds / 2; ++op) {
      share_work(2, 1, [&](std::int64_t begin, std::int64_t, int) { sum.fetch_add(begin, std::memory_order_relaxed); });
    }
    EXPECT_EQ(sum, kNumbers - kRounds / 2);
    for (int round = 0; round < kRounds; ++round) {
      set_team_threads(1);
      set_team_threads(2);
    }
  }).join();
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Helpers between two ops, and the caller while a helper is not done: they spin for a fraction of a millisecond. CPU
// time does not depend on what else the machine does.
TEST(Team, ThreadsThatWaitSleep) {
  set_team_threads(4);
  share_work(4, 1, [](std::int64_t, std::int64_t, int) {});
  const double start = cpu_seconds();
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(100ms);  // nothing to do
    share_work(4, 1, [](std::int64_t begin, std::int64_t, int) {
      if (begin == 3) std::this_thread::sleep_for(100ms);  // the others wait for one
    });
  }
  EXPECT_LT(cpu_seconds() - start, 0.25) << "four threads that spun would take up to 4 s";
  set_team_threads(1);
}

}  // namespace
}  // namespace ms::tensor
