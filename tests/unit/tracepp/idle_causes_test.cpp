// Why devices are idle: one hand-made trace for each cause, and what is withheld.
#include "tracepp/steps/idle_causes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "foreign_files.h"
#include "kineto_job.h"
#include "tracepp/report/json.h"
#include "tracepp/report/report.h"
#include "tracepp/report/text.h"
#include "tracepp/steps/breakdown.h"

namespace ms::tracepp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Told {
  explicit Told(const KinetoJob& job) : trace(read_jobs({job})), ranks(idle_causes(trace)) {}
  double us(IdleCause cause) const { return 1e-3 * static_cast<double>(ranks.at(0).of(cause)); }
  double all_us() const {
    double sum = 0;
    for (std::size_t c = 0; c < kIdleCauses; ++c) sum += us(static_cast<IdleCause>(c));
    return sum;
  }
  // Where the host was in most of the time of this cause.
  std::string where(IdleCause cause) const {
    for (const IdleTime& time : ranks.at(0).places) {
      if (time.place.cause == cause) return place_text(trace, time.place);
    }
    return {};
  }
  RunTrace trace;
  std::vector<RankIdle> ranks;
};

TEST(IdleCauses, ALaunchThatComesLateIsTheHosts) {
  const Told told(KinetoJob()
                      .step(1, 0, 1000)
                      .launched(0, 10, 200, 1)
                      .python("train.py(30): main", 0, 990)
                      .python("train.py(12): log", 210, 690)
                      .launched(700, 720, 1000, 2));
  EXPECT_EQ(told.us(IdleCause::late), 500 + 0) << "from the end of a kernel to the launch of the next one";
  EXPECT_EQ(told.us(IdleCause::launch), 20 + 10);
  EXPECT_EQ(told.us(IdleCause::synchronises), 0);
  EXPECT_EQ(told.where(IdleCause::late), "train.py(12): log");
  EXPECT_EQ(told.all_us(), 530);
}

TEST(IdleCauses, AWaitForTheDeviceCostsAtMostAsLongAsItWaited) {
  // The host waits for 150 us inside clip_grad_norm_. It needs 400 us to the next launch: without the wait, it would
  // have been there 150 us earlier.
  KinetoJob job;
  job.step(1, 0, 1000)
      .python("train.py(212): train_step", 0, 999)
      .python("torch/nn/utils/clip_grad.py(31): clip_grad_norm_", 20, 220)
      .launched(5, 10, 200, 1)
      .op("aten::item", 50, 212)
      .op("aten::_local_scalar_dense", 51, 211)
      .call("cudaStreamSynchronize", 60, 210, 90)
      .op("aten::mm", 300, 620)
      .launched(600, 610, 1000, 2);
  const Told told(job);
  EXPECT_EQ(told.us(IdleCause::synchronises), 140 + 10) << "10 us until the host is back, and as long as it waited";
  EXPECT_EQ(told.us(IdleCause::late), 5 + 400 - 150);
  EXPECT_EQ(told.where(IdleCause::synchronises), "aten::item below clip_grad_norm_ (train.py(212): train_step)");
}

TEST(IdleCauses, ACopyToPageableMemoryWaits) {
  const auto job = [](const std::string& copy) {
    return KinetoJob()
        .step(1, 0, 1000)
        .launched(0, 10, 500, 1)
        .op("aten::to", 20, 700)
        .call("cudaMemcpyAsync", 30, 610, 2)
        .kernel(copy, 510, 600, 2)
        .launched(680, 690, 1000, 3);
  };
  const Told pageable(job("Memcpy DtoH (Device -> Pageable)")), pinned(job("Memcpy DtoH (Device -> Pinned)"));
  EXPECT_EQ(pageable.us(IdleCause::synchronises), 80);
  EXPECT_EQ(pageable.where(IdleCause::synchronises), "aten::to");
  EXPECT_EQ(pinned.us(IdleCause::synchronises), 0);
  EXPECT_EQ(pinned.us(IdleCause::late), 80);
}

struct NamedCause {
  std::string category, name;
  IdleCause cause = IdleCause::late;
};

TEST(IdleCauses, AreKnownByWhatRunsOnTheHost) {
  const std::vector<NamedCause> names{
      {"user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", IdleCause::data},
      {"python_function", "torch/utils/data/dataloader.py(701): __next__", IdleCause::data},
      {"python_function", "torch/serialization.py(900): save", IdleCause::save},
      {"python_function", "torch/distributed/checkpoint/state_dict_saver.py(90): save", IdleCause::save},
      {"python_function", "megatron/training/checkpointing.py(300): save_checkpoint", IdleCause::save},
      {"python_function", "<built-in function collect>", IdleCause::collection},
      {"python_function", "Python GC", IdleCause::collection},
      {"user_annotation", "entire_frame_compile (dynamo_timed)", IdleCause::compilation},
      {"python_function", "torch/_dynamo/convert_frame.py(1200): __call__", IdleCause::compilation},
      {"python_function", "triton/compiler/compiler.py(230): compile", IdleCause::compilation},
      {"python_function", "torch/utils/cpp_extension.py(1900): load", IdleCause::compilation},
      {"cpu_op", "compile_attempt_0 (dynamo_timed)", IdleCause::compilation},
      // These are not what their names remind of.
      {"python_function", "torch/utils/checkpoint.py(480): checkpoint", IdleCause::late},
      {"user_annotation", "Torch-Compiled Region: 0/0", IdleCause::late},
      {"user_annotation", "TorchDynamo Cache Lookup", IdleCause::late},
      {"python_function", "torch/_dynamo/eval_frame.py(560): _fn", IdleCause::late},
      {"python_function", "stats.py(3): collect", IdleCause::late},
      {"python_function", "game.py(3): save", IdleCause::late}};
  for (const NamedCause& of : names) {
    const Told told(KinetoJob()
                        .step(1, 0, 1000)
                        .launched(0, 10, 200, 1)
                        .host(of.category, of.name, 250, 650)
                        .op("aten::stack", 300, 400)
                        .launched(700, 710, 1000, 2));
    EXPECT_EQ(told.us(of.cause), of.cause == IdleCause::late ? 500 : 400) << of.name;
    EXPECT_EQ(told.all_us(), 520) << of.name;
  }
}

TEST(IdleCauses, ALoaderThatRunsAheadHoldsNothingUp) {
  const Told told(KinetoJob()
                      .step(1, 0, 1000)
                      .launched(0, 10, 200, 1)
                      .host("python_function", "torch/utils/data/dataloader.py(701): __next__", 0, 990, 200)
                      .launched(700, 710, 1000, 2));
  EXPECT_EQ(told.us(IdleCause::data), 0);
  EXPECT_EQ(told.us(IdleCause::late), 500);
}

TEST(IdleCauses, TheThreadThatLaunchesIsTheOneThatIsLate) {
  const Told told(KinetoJob()
                      .step(1, 0, 1000)
                      .python("train.py(30): main", 0, 1000)
                      .launched(0, 10, 200, 1)
                      .op("autograd::engine::evaluate_function: AddmmBackward0", 150, 950, 300)
                      .call("cudaMalloc", 220, 620, 80, 300)
                      .call("cudaLaunchKernel", 700, 705, 2, 300)
                      .kernel("gemm", 710, 1000, 2));
  EXPECT_EQ(told.us(IdleCause::late), 500);
  EXPECT_EQ(told.where(IdleCause::late), "cudaMalloc in autograd::engine::evaluate_function: AddmmBackward0");
}

TEST(IdleCauses, AQueuedKernelIsNotTheHosts) {
  KinetoJob job;
  job.step(1, 0, 1000).launched(0, 10, 200, 1).launched(20, 215, 400, 2).launched(40, 600, 800, 3);
  job.launched(60, 900, 1000, 4).host("cuda_sync", "Stream Wait Event", 850, 899);
  const Told told(job);
  EXPECT_EQ(told.us(IdleCause::between), 15);
  EXPECT_EQ(told.us(IdleCause::queued), 200);
  EXPECT_EQ(told.us(IdleCause::event), 100);
  EXPECT_EQ(told.us(IdleCause::late), 0);
}

TEST(IdleCauses, AreWithheldWhereTheTraceDoesNotTellTheLaunch) {
  KinetoJob job;
  job.step(1, 0, 1000).kernel("gemm", 10, 200, 1).kernel("gemm", 700, 1000, 2);
  job.op("aten::mm", 300, 690);
  const Told told(job);
  EXPECT_EQ(told.us(IdleCause::unknown), 510);
  EXPECT_FALSE(told.ranks[0].doubt.empty());
  EXPECT_EQ(told.where(IdleCause::unknown), "");
}

TEST(IdleCauses, AreWithheldWhereTheClocksDisagree) {
  KinetoJob job;
  job.step(1, 0, 2000);
  for (int i = 0; i < 10; ++i) job.launched(200 * i + 100, 200 * i, 200 * i + 50, i);
  const Told told(job);
  EXPECT_EQ(told.us(IdleCause::unknown), told.all_us());
  EXPECT_FALSE(told.ranks[0].doubt.empty());
}

TEST(IdleCauses, WithoutADeviceTheHostIsOutsideOfOperators) {
  const Told told(KinetoJob()
                      .step(1, 0, 1000)
                      .python("train.py(30): main", 0, 1000)
                      .op("aten::mm", 0, 300)
                      .host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 300, 700)
                      .python("data.py(8): tokenize", 310, 690)
                      .op("aten::mm", 700, 900));
  EXPECT_FALSE(told.ranks[0].has_device);
  EXPECT_EQ(told.us(IdleCause::data), 400);
  EXPECT_THAT(told.where(IdleCause::data), ::testing::HasSubstr("data.py(8): tokenize"));
  EXPECT_EQ(told.us(IdleCause::outside), 100);
  EXPECT_EQ(told.where(IdleCause::outside), "train.py(30): main");
  const StepTime step = sum_of(break_down(told.trace).steps);
  EXPECT_EQ(step.data_wait_ns, 400'000);
  EXPECT_EQ(step.idle_ns, 100'000);
}

// What a loader or a compiler runs is not the step's computing: without a device, operators are.
TEST(IdleCauses, OperatorsOfALoaderOrACompilerDoNotCompute) {
  const Told told(KinetoJob()
                      .step(1, 0, 1000)
                      .op("aten::mm", 0, 100)
                      .host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100, 400)
                      .op("aten::mm", 150, 350)
                      .op("compile_attempt_0 (dynamo_timed)", 400, 900)
                      .op("aten::mm", 450, 850)
                      .op("aten::mm", 900, 1000));
  EXPECT_EQ(told.us(IdleCause::data), 300);
  EXPECT_EQ(told.us(IdleCause::compilation), 500);
  EXPECT_EQ(sum_of(break_down(told.trace).steps).busy_ns, 200'000);
}

TEST(IdleCauses, TheLineIsTheUsersAndCountsInAllItsPlaces) {
  KinetoJob job;
  job.step(1, 0, 1000).python("train.py(30): main", 0, 1000).op("aten::mm", 0, 100);
  job.python("train.py(8): log", 100, 700).python("json/encoder.py(224): floatstr", 110, 300);
  job.python("logging/__init__.py(1500): info", 400, 690).python("jsonx/a.py(3): put", 750, 950);
  RunTrace trace = read_jobs({job});
  const std::vector<Advice> list = look_first(trace, analyse(trace));
  ASSERT_THAT(list, SizeIs(1));
  EXPECT_EQ(list[0].cause, "outside");
  EXPECT_EQ(list[0].rank, -1);
  EXPECT_EQ(list[0].line, "train.py(8): log") << "600 us in three places; 200 in one of jsonx, which is the user's";
  EXPECT_NEAR(list[0].cost_share, 0.9, 1e-9);
}

TEST(IdleCauses, CopiesAreNotComputing) {
  const RunTrace trace = read_jobs({KinetoJob()
                                        .step(1, 0, 1000)
                                        .launched(0, 0, 300, 1)
                                        .call("cudaMemcpyAsync", 1, 5, 2)
                                        .kernel("Memcpy HtoD (Pinned -> Device)", 200, 500, 2, 20)
                                        .call("cudaMemsetAsync", 6, 9, 3)
                                        .kernel("Memset (Device)", 900, 1000, 3)});
  const StepTime step = sum_of(break_down(trace).steps);
  EXPECT_EQ(step.busy_ns, 300'000);
  EXPECT_EQ(step.copy_ns, 300'000) << "without what computing hides";
  EXPECT_EQ(step.idle_ns, 400'000);
}

TEST(IdleCauses, TheRankThatIsIdleMoreThanOthersIsNamed) {
  std::vector<KinetoJob> ranks;
  for (int r = 0; r < 4; ++r) {
    const double late = r == 2 ? 400 : 0;
    KinetoJob& job = ranks.emplace_back(r);
    for (int s = 0; s < 4; ++s) {
      const double at = 1000 * s;
      job.step(s + 1, at, at + 1000).launched(at + late, at + late + 5, at + late + 590, 2 * s);
      job.call("cudaLaunchKernelExC", at + late + 6, at + late + 9, 2 * s + 1);
      job.kernel("ncclDevKernel_AllReduce_Sum", at + late + 590, at + 995, 2 * s + 1, 22);
    }
  }
  RunTrace trace = read_jobs(ranks);
  const Analysis analysis = analyse(trace);
  const std::vector<Advice> list = look_first(trace, analysis);
  const auto named =
      std::ranges::find_if(list, [](const Advice& a) { return a.sentence.starts_with("rank 2 is idle"); });
  ASSERT_NE(named, list.end());
  EXPECT_LT(std::abs(named->cost_share - 0.4), 0.2);
  EXPECT_GE(named->confidence, 0.8);
  const auto json = nlohmann::json::parse(dump(idle_json(trace, analysis.idle)));
  ASSERT_THAT(json, SizeIs(4));
  EXPECT_EQ(json[2]["steps"].size(), 4U);
}

TEST(IdleCauses, AHealthyRunIsNotAccused) {
  std::vector<KinetoJob> ranks;
  for (int r = 0; r < 4; ++r) {
    KinetoJob& job = ranks.emplace_back(r);
    job.python("train.py(30): main", 0, 4000);
    for (int s = 0; s < 4; ++s) {
      job.step(s + 1, 1000 * s, 1000 * (s + 1));
      for (int k = 0; k < 4; ++k) {
        const double at = 1000 * s + 250 * k + r;
        job.launched(std::max(0.0, at - 200), at, at + 248, 4 * s + k);
      }
    }
  }
  RunTrace trace = read_jobs(ranks);
  EXPECT_THAT(look_first(trace, analyse(trace)), IsEmpty());
}

TEST(IdleCauses, OfRunsWithoutAHostAreNotKnown) {
  const ForeignFiles files;
  const std::string text = R"([{"ph":"X","cat":"c","name":"a","pid":1,"tid":2,"ts":1,"dur":2}])";
  EXPECT_THAT(idle_causes(read_run({files.put("trace.json", text)})), IsEmpty());
}

}  // namespace
}  // namespace ms::tracepp
