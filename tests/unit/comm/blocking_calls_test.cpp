// Calls that block until another thread ends them.
#include "comm/blocking_calls.h"

#include <gtest/gtest.h>

#include <atomic>

namespace ms::comm {
namespace {

void no_interrupt() {}

TEST(BlockingCalls, ReturnWhatTheCallReturns) {
  BlockingCalls calls;
  EXPECT_FALSE(calls.in_progress());
  EXPECT_EQ(calls.run("a sum", no_interrupt, [&] { return calls.in_progress()->second == "a sum" ? 7 : 0; }), 7);
  EXPECT_FALSE(calls.in_progress());
}

TEST(BlockingCalls, AnotherThreadEndsTheOneInProgressAndAllLaterOnes) {
  BlockingCalls calls;
  std::atomic<bool> waits = true;
  std::thread other([&] {
    while (!calls.in_progress()) std::this_thread::yield();
    calls.end();
  });
  const auto blocked = calls.run(
      "a peer",
      [&] {
        waits = false;
        waits.notify_all();
      },
      [&] {
        waits.wait(true);
        return 1;
      });
  other.join();
  EXPECT_EQ(blocked, 1);
  EXPECT_EQ(calls.run("another", no_interrupt, [] { return 2; }), std::nullopt);
}

TEST(BlockingCalls, AThreadThatNobodyWaitsForStaysBehind) {
  std::atomic<bool> waits = true;
  std::future<int> result = in_thread([&] {
    waits.wait(true);
    return 3;
  });
  EXPECT_EQ(result.wait_for(std::chrono::milliseconds(1)), std::future_status::timeout);
  waits = false;
  waits.notify_all();
  EXPECT_EQ(result.get(), 3);
}

}  // namespace
}  // namespace ms::comm
