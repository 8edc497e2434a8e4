// Why devices are idle in published traces of GPUs, of which HTA 0.5 says what ../shared/data/kineto/README.md and the
// table below say, and in the cases.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tracepp/read/read.h"
#include "tracepp/report/json.h"
#include "tracepp/report/report.h"
#include "tracepp/steps/breakdown.h"
#include "tracepp/steps/idle_causes.h"

namespace ms::tracepp {
namespace {

namespace fs = std::filesystem;
using ::testing::SizeIs;

// HTA 0.5, get_idle_time_breakdown of all streams, in microseconds: host wait, kernel wait, other.
struct Published {
  std::string file;
  std::array<std::int64_t, 3> us;
};

TEST(IdleCauses, OfStreamsAreThoseOfHta) {
  const fs::path folder = fs::path(MS_SOURCE_DIR) / "../shared/data/kineto";
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/data/kineto is not here";
  const std::vector<Published> published{
      {"ddp_resnet_rank0_of_2.json.gz", {357247 + 381499, 2155, 0}},
      {"rank0_of_16.json.gz",
       {628598 + 792592 + 62901, 17159 + 85 + 1000 + 75 + 12, 691231 + 7135 + 675305 + 673182 + 665192}},
      {"sampled_rank0_of_128.json.gz", {596037 + 148934 + 213825, 70 + 6 + 9 + 1985, 34 + 47865 + 261740}},
      {"alexnet.json.gz", {12855007 + 12011718, 104 + 3, 0}},
      {"amd_mi250.json.gz", {8780, 0, 0}},
      // HTA prints 1709 and 8404: its floating point tells microseconds since 1970 only to a quarter. Of the same
      // trace with times that begin at 0 it prints these, see tests/pytorch/hta_peer.py.
      {"ns_resolution_rank0.pt.trace.json.gz", {1926, 9381, 0}}};
  for (const Published& of : published) {
    const std::vector<RankIdle> ranks = idle_causes(read_run({folder / of.file}));
    ASSERT_THAT(ranks, SizeIs(1)) << of.file;
    std::array<std::int64_t, 3> sum{};
    for (const StreamIdle& stream : ranks[0].streams) {
      sum[0] += stream.host_wait_us;
      sum[1] += stream.kernel_wait_us;
      sum[2] += stream.other_us;
    }
    EXPECT_EQ(sum, of.us) << of.file;
  }
}

// Every nanosecond of a step has one cause, also in traces of real jobs.
TEST(IdleCauses, AddUpToTheIdleTime) {
  const fs::path folder = fs::path(MS_SOURCE_DIR) / "../shared/data/kineto";
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/data/kineto is not here";
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() != ".gz") continue;
    const RunTrace trace = read_run({file.path()});
    const std::vector<RankIdle> ranks = idle_causes(trace);
    ASSERT_THAT(ranks, SizeIs(1)) << file;
    std::int64_t sum = 0;
    for (std::size_t c = 0; c < kIdleCauses; ++c) sum += ranks[0].of(static_cast<IdleCause>(c));
    const StepTime step = sum_of(break_down(trace).steps);
    EXPECT_EQ(sum, step.idle_ns + step.data_wait_ns + step.save_ns) << file;
  }
}

TEST(IdleCauses, OfTheCases) {
  const fs::path folder = fs::path(MS_SOURCE_DIR) / "../shared/cases/traces";
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/cases/traces is not here";
  RunTrace late = read_run({folder / "36-host-late-one-rank"});
  const Analysis of_late = analyse(late);
  EXPECT_GE(of_late.idle.at(2).of(IdleCause::late), 10 * 1'600'000) << "1.6 ms in each of ten steps";
  for (const std::size_t other : {0U, 1U, 3U}) EXPECT_LT(of_late.idle.at(other).of(IdleCause::late), 1'000'000);
  const std::vector<Advice> list = look_first(late, of_late);
  EXPECT_TRUE(list.at(0).sentence.starts_with("rank 2 comes last"));
  EXPECT_TRUE(std::ranges::any_of(
      list, [](const Advice& a) { return a.sentence.starts_with("rank 2 (dp 2 pp 0 tp 0) is idle"); }));

  RunTrace no_steps = read_run({folder / "33-no-profiler-step"});
  const Analysis of_no_steps = analyse(no_steps);
  for (const RankIdle& rank : of_no_steps.idle) EXPECT_THAT(rank.steps, SizeIs(1));
  const auto json = nlohmann::json::parse(dump(report_json(no_steps, of_no_steps)));
  EXPECT_EQ(json["steps_known"], false);
  EXPECT_TRUE(look_first(no_steps, of_no_steps).at(0).sentence.starts_with("rank 2 comes last"));
}

}  // namespace
}  // namespace ms::tracepp
