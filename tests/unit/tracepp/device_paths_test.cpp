// The critical path through host threads, launches, streams and ranks: hand-made traces with one right path each, and
// the published traces of GPUs, whose step times HTA 0.5's critical path agrees with.
#include "tracepp/steps/device_paths.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "kineto_job.h"
#include "tracepp/report/json.h"
#include "tracepp/report/report.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// The path of made ranks: microseconds by what it is, "kernel gemm", and by rank.
struct PathOfJobs {
  explicit PathOfJobs(const std::vector<KinetoJob>& jobs)
      : trace(read_jobs(jobs)), paths(device_paths(trace, match_operations(trace))) {
    for (const PathTime& time : paths.by_work) {
      const std::string what = path_work_text(trace, time.work);
      us[std::string(to_string(time.work.of)) + (what.empty() ? "" : " ") + what] +=
          1e-3 * static_cast<double>(time.time_ns);
    }
    for (const PathRank& rank : paths.by_rank)
      ranks[trace.ranks[rank.rank].rank] = 1e-3 * static_cast<double>(rank.time_ns);
  }
  RunTrace trace;
  DevicePaths paths;
  std::map<std::string, double> us;
  std::map<int, double> ranks;
};

// Every step's pieces are its time, without gaps.
void expect_whole(const DevicePaths& paths) {
  std::int64_t sum_ns = 0;
  for (const DevicePath& step : paths.steps) {
    std::int64_t at_ns = step.begin_ns;
    for (const DevicePiece& piece : step.pieces) {
      EXPECT_EQ(piece.begin_ns, at_ns);
      EXPECT_GT(piece.end_ns, piece.begin_ns);
      at_ns = piece.end_ns;
    }
    EXPECT_EQ(at_ns, step.end_ns);
    sum_ns += step.end_ns - step.begin_ns;
  }
  EXPECT_EQ(sum_ns, paths.time_ns);
  std::int64_t of_work_ns = 0, of_ranks_ns = 0;
  for (const PathTime& time : paths.by_work) of_work_ns += time.time_ns;
  for (const PathRank& rank : paths.by_rank) of_ranks_ns += rank.time_ns;
  EXPECT_EQ(of_work_ns, sum_ns);
  EXPECT_EQ(of_ranks_ns, sum_ns);
}

TEST(DevicePaths, LeadFromAKernelOverItsLaunchToTheHost) {
  const PathOfJobs path(
      {KinetoJob(0, 1).step(1, 0, 900).python("train.py(12): log", 0, 700).launched(700, 720, 1000, 1)});
  EXPECT_THAT(path.us, UnorderedElementsAre(Pair("kernel gemm", 280), Pair("launch in cudaLaunchKernel", 20),
                                            Pair("host train.py(12): log", 700)));
  expect_whole(path.paths);
}

TEST(DevicePaths, FollowAStreamWhileItsKernelsAreQueued) {
  const PathOfJobs path({KinetoJob(0, 1)
                             .step(1, 0, 100)
                             .launched(0, 10, 400, 1)
                             .launched(20, 402, 700, 2, "norm")
                             .launched(40, 900, 1000, 3, "late")});
  EXPECT_THAT(path.us,
              UnorderedElementsAre(Pair("kernel gemm", 390), Pair("kernel norm", 298), Pair("kernel late", 100),
                                   Pair("gap", 2), Pair("launch in cudaLaunchKernel", 10),
                                   Pair("unknown queued, and the trace does not show what it waits for", 200)));
  expect_whole(path.paths);
}

TEST(DevicePaths, LeadToTheStreamThatAnotherOneWaitedFor) {
  // The norm is launched early, and waits for a copy on another stream.
  const PathOfJobs path({KinetoJob(0, 1)
                             .step(1, 0, 100)
                             .call("cudaMemcpyAsync", 0, 5, 1)
                             .kernel("Memcpy HtoD (Pinned -> Device)", 10, 600, 1, 20)
                             .launched(20, 30, 90, 2)
                             .launched(40, 604, 1000, 3, "norm")});
  EXPECT_EQ(path.us.at("copy Memcpy HtoD (Pinned -> Device)"), 590);
  EXPECT_EQ(path.us.at("kernel norm"), 396);
  EXPECT_FALSE(path.us.contains("kernel gemm")) << "it is hidden under the copy";
  expect_whole(path.paths);
}

TEST(DevicePaths, LeadFromAHostThatSynchronisesToTheDevice) {
  const PathOfJobs path({KinetoJob(0, 1)
                             .step(1, 0, 1000)
                             .launched(0, 10, 600, 1)
                             .op("aten::item", 50, 620)
                             .call("cudaStreamSynchronize", 60, 610, 90)
                             .op("aten::add", 620, 700)
                             .launched(700, 710, 1000, 2, "norm")});
  EXPECT_EQ(path.us.at("kernel gemm"), 590);
  EXPECT_EQ(path.us.at("host synchronises: aten::item"), 10);
  EXPECT_EQ(path.us.at("host aten::item"), 10);
  EXPECT_EQ(path.us.at("host aten::add"), 80);
  EXPECT_EQ(path.us.at("kernel norm"), 290);
  expect_whole(path.paths);
}

TEST(DevicePaths, FollowTheThreadOfAutograd) {
  const PathOfJobs path({KinetoJob(0, 1)
                             .step(1, 0, 1000)
                             .op("aten::mm", 0, 100)
                             .op("autograd::engine::evaluate_function: MmBackward0", 120, 650, 300)
                             .call("cudaLaunchKernel", 600, 605, 1, 300)
                             .kernel("gemm", 620, 1000, 1)});
  EXPECT_EQ(path.us.at("host autograd::engine::evaluate_function: MmBackward0"), 480);
  EXPECT_EQ(path.us.at("host aten::mm"), 100);
  expect_whole(path.paths);
}

// Ranks whose rank 1 loads data for 400 us before its only kernel.
std::vector<KinetoJob> slow_loader() {
  std::vector<KinetoJob> ranks;
  for (int r = 0; r < 4; ++r) {
    KinetoJob& job = ranks.emplace_back(r);
    for (int s = 0; s < 4; ++s) {
      const double at = 2000 * s, late = r == 1 ? 400 : 0;
      job.step(s + 1, at, at + 2000)
          .host("user_annotation", "enumerate(DataLoader)#_Iter.__next__", at, at + 10 + late);
      job.launched(at + 10 + late, at + 20 + late, at + 1500 + late, 10 * s);
      job.all_reduce(at + 20 + late, at + 1502 + late, at + 1990, 10 * s + 1, s);
      job.call("cudaStreamSynchronize", at + 30 + late, at + 1995, 10 * s + 2);
    }
  }
  return ranks;
}

TEST(DevicePaths, LeadFromACollectiveToTheRankThatCameLast) {
  const PathOfJobs path(slow_loader());
  EXPECT_THAT(path.paths.steps, SizeIs(4));
  EXPECT_NEAR(path.us.at("host data: enumerate(DataLoader)#_Iter.__next__"), 4 * 410, 30);
  EXPECT_NEAR(path.us.at("communication ncclDevKernel_AllReduce_Sum_f32_RING_LL of default_pg 0"), 4 * 88, 1);
  EXPECT_GT(path.ranks.at(1), 0.9 * 1e-3 * static_cast<double>(path.paths.time_ns));
  ASSERT_THAT(path.paths.moves, ::testing::Not(IsEmpty()));
  EXPECT_EQ(path.trace.ranks[path.paths.moves[0].to].rank, 1);
  EXPECT_EQ(path.paths.moves[0].waited_ns % 400'000, 0);
  expect_whole(path.paths);
}

TEST(DevicePaths, DoNotSplitACollectiveOfWhichRanksAreMissing) {
  std::vector<KinetoJob> ranks = slow_loader();
  ranks.erase(ranks.begin() + 1);
  const PathOfJobs path(ranks);
  EXPECT_NEAR(path.us.at("unsplit ncclDevKernel_AllReduce_Sum_f32_RING_LL of default_pg 0"), 4 * 488, 1);
  EXPECT_FALSE(path.us.contains("communication ncclDevKernel_AllReduce_Sum_f32_RING_LL of default_pg 0"));
  expect_whole(path.paths);
}

TEST(DevicePaths, AreNotKnownWithoutAHost) {
  const ForeignFiles files;
  const std::string text = R"([{"ph":"X","cat":"c","name":"a","pid":1,"tid":2,"ts":1,"dur":2}])";
  const RunTrace trace = read_run({files.put("trace.json", text)});
  EXPECT_NE(device_paths(trace, match_operations(trace)).unknown, "");
}

TEST(DevicePaths, AreInTheReport) {
  RunTrace trace = read_jobs(slow_loader());
  const Analysis analysis = analyse(trace);
  const auto json = nlohmann::json::parse(dump(report_json(trace, analysis)))["critical_path"];
  EXPECT_EQ(json["known"], true);
  double sum = json["other_ms"];
  for (const auto& row : json["by_work"]) sum += row["ms"].get<double>();
  EXPECT_NEAR(sum, json["ms"].get<double>(), 1e-9);
  EXPECT_EQ(json["by_rank"][0]["rank"], 1);
  EXPECT_EQ(json["moves"][0]["waits_for"], 1);
}

// HTA 0.5 with HTA_DISABLE_NS_ROUNDING=1, critical_path_analysis of a ProfilerStep, its total in microseconds, by step.
// Of the first step HTA leaves out what the host did before the first launch. Where the host is on the path
// (ddp_resnet_rank0_of_2, sampled_rank0_of_128), HTA counts operators only, so that its sum is shorter than the step;
// ours are the step.
TEST(DevicePaths, OfStepsTakeAsLongAsHtaSays) {
  const fs::path folder = fs::path(MS_SOURCE_DIR) / "../shared/data/kineto";
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/data/kineto is not here";
  const std::map<std::string, std::map<std::int32_t, double>> hta_us{
      {"ns_resolution_rank0.pt.trace.json.gz",
       {{102, 95736.087}, {103, 95569.823}, {104, 95663.273}, {105, 95393.977}}},
      {"rank0_of_16.json.gz", {{551, 215565}, {552, 216514}, {553, 216208}, {554, 212515}}}};
  for (const auto& [file, steps] : hta_us) {
    const RunTrace trace = read_run({folder / file});
    const DevicePaths paths = device_paths(trace, match_operations(trace));
    std::size_t found = 0;
    for (const DevicePath& step : paths.steps) {
      if (!steps.contains(step.step)) continue;
      ++found;
      EXPECT_NEAR(1e-3 * static_cast<double>(step.end_ns - step.begin_ns), steps.at(step.step), 5) << file;
    }
    EXPECT_EQ(found, steps.size()) << file;
  }
  // gpu_compute_bound of HTA: kernels and copies on the path.
  const RunTrace trace = read_run({folder / "ns_resolution_rank0.pt.trace.json.gz"});
  std::int64_t device_ns = 0;
  const DevicePaths paths = device_paths(trace, match_operations(trace));
  for (const DevicePath& step : paths.steps)
    for (const DevicePiece& piece : step.pieces)
      if (step.step > 101 && (piece.work.of == PathOf::kernel || piece.work.of == PathOf::copy))
        device_ns += piece.end_ns - piece.begin_ns;
  EXPECT_NEAR(1e-3 * static_cast<double>(device_ns), 94591.138 + 94459.362 + 94561.467 + 94272.679, 0.001);
}

TEST(DevicePaths, AddUpToTheStepsOfRealJobs) {
  const fs::path folder = fs::path(MS_SOURCE_DIR) / "../shared/data/kineto";
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/data/kineto is not here";
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() != ".gz") continue;
    const RunTrace trace = read_run({file.path()});
    const DevicePaths paths = device_paths(trace, match_operations(trace));
    EXPECT_GT(paths.time_ns, 0) << file;
    expect_whole(paths);
  }
}

}  // namespace
}  // namespace ms::tracepp
