// A process whose run is over reports at once, and ends even if the thread that runs its rank does not.
#include "train/run/shutdown.h"

#include <gtest/gtest.h>

#include <future>

namespace ms::train {
namespace {

using namespace std::chrono_literals;

const comm::World::Cause kCause{3, Error("comm.peer_lost", Blame::peer, "rank 2 died")};

TEST(ShutdownWatch, ReportsAFailureAtOnceAndThenEndsTheProcess) {
  std::promise<int> reported, ended;
  ShutdownWatch watch(
      1ms, [&](const comm::World::Cause& cause) { reported.set_value(cause.rank); },
      [&](const comm::World::Cause& cause) { ended.set_value(cause.rank); });
  watch.begin_failed(kCause, 0ms);
  watch.begin_failed({4, kCause.error}, 0ms);
  EXPECT_EQ(reported.get_future().get(), 3);
  EXPECT_EQ(ended.get_future().get(), 3);
}

TEST(ShutdownWatch, DoesNotReportWithinTheGraceOfAStart) {
  bool is_reported = false;
  {
    ShutdownWatch watch(
        1h, [&](const comm::World::Cause&) { is_reported = true; }, [](const comm::World::Cause&) {});
    watch.begin_failed(kCause, 1h);
  }
  EXPECT_FALSE(is_reported);
}

TEST(ShutdownWatch, EndsAProcessWhoseRunIsDone) {
  bool is_reported = false;
  std::promise<void> ended;
  {
    ShutdownWatch watch(
        1h, [&](const comm::World::Cause&) { is_reported = true; }, [](const comm::World::Cause&) {});
    watch.begin_done(1ms, [&] { ended.set_value(); });
    ended.get_future().get();
    watch.begin_failed(kCause, 0ms);
  }
  EXPECT_FALSE(is_reported) << "the run is done";
}

}  // namespace
}  // namespace ms::train
