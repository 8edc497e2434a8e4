// Ranks as threads beside the memory of the node.
#include "train/run/host_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/engine/rank_tensors.h"

namespace ms::train {
namespace {

constexpr const char* kThreads = R"(
[model]
layers = 4
hidden = 24
heads = 6
vocab = 37
seq = 12
[mesh]
dp = 2
pp = 2
[train]
global_batch = 12
)";

Plan plan_with(const std::vector<std::string>& assignments) {
  return make_plan(load_text(kThreads, "test", assignments).settings, 4);
}

TEST(HostCheck, CountsEveryRankAndWhatSavingTakes) {
  const Plan plan = plan_with({});
  const std::int64_t of_ranks =
      2 * (rank_memory(plan, {.pp = 0}).total_bytes + rank_memory(plan, {.pp = 1}).total_bytes);
  EXPECT_EQ(host_bytes(plan), of_ranks);
  EXPECT_GT(host_bytes(plan_with({"checkpoint.dir=ck"})), of_ranks);
}

TEST(HostCheck, RefusesWhatTheNodeCannotHold) {
  const Plan plan = plan_with({});
  const std::int64_t needed = host_bytes(plan);
  for (const HostMemory& memory : {HostMemory{}, HostMemory{needed, needed}, HostMemory{needed, 0}}) {
    EXPECT_NO_THROW(check_host_memory(plan, memory)) << memory.total_bytes << " " << memory.free_bytes;
  }
  try {
    check_host_memory(plan, {.total_bytes = needed - 1, .free_bytes = 5});
    FAIL() << "more than there is was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), "train.memory");
    EXPECT_EQ(error.blame(), Blame::user);
    EXPECT_THAT(error.message(), testing::HasSubstr("4 ranks as threads would take"));
  }
}

TEST(HostCheck, RefusesALimitThatLibrariesWouldCrashAt) {
  const Plan plan = plan_with({}), saving = plan_with({"checkpoint.dir=ck", "checkpoint.memory_dir=m"});
  constexpr std::int64_t kStack = 8 << 20, kMargin = 64 << 20;
  const std::int64_t least = host_bytes(plan) + 14 * kStack + kMargin;
  const HostMemory no_limit{.stack_bytes = kStack};
  HostMemory enough = no_limit, short_of = no_limit;
  enough.address_bytes = least;
  short_of.address_bytes = least - 1;
  EXPECT_NO_THROW(check_host_memory(plan, no_limit));
  EXPECT_NO_THROW(check_host_memory(plan, enough));
  for (const auto& [refused, memory] : {std::pair{plan, short_of}, std::pair{saving, enough}}) {
    try {
      check_host_memory(refused, memory);
      FAIL() << "a limit that is too low was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "train.memory");
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_THAT(error.message(), testing::HasSubstr("'ulimit -v' leaves this process"));
    }
  }
}

}  // namespace
}  // namespace ms::train
