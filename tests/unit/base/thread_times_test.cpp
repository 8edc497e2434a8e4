// How long a thread waits for a CPU.
#include "base/thread_times.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>

#include "base/clock.h"

namespace ms {
namespace {

void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
}

// Two threads want one CPU all the time. The test ends when the wait of one shows, however late that is.
TEST(OwnWaits, GrowWhileAnotherThreadHasTheCpu) {
  std::atomic<bool> done = false;
  double share = 0, last = 0;
  std::jthread measures([&] {
    const int cpu = sched_getcpu();
    stay_on(cpu);
    std::jthread other([&] {
      stay_on(cpu);
      while (!done) {}
    });
    const OwnWaits waits;
    for (const double end_s = monotonic_s() + 60; share < 0.1 && monotonic_s() < end_s;) share = waits.share();
    last = OwnWaits().share();
    done = true;
  });
  measures.join();
  EXPECT_GE(share, 0.1);
  EXPECT_LE(share, 1);
  EXPECT_GE(last, 0);
  EXPECT_LE(last, 1);
}

}  // namespace
}  // namespace ms
