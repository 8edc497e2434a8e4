// What a rank that comes last to collectives executes longer than others, and which confidence few steps allow.
#include "tracepp/findings/slow_work.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "kineto_job.h"
#include "tracepp/report/report.h"

namespace ms::tracepp {
namespace {

using SlowIs = SlowWork::Is;

// Three ranks: in every step two layers of a GEMM and a convolution, then gradients are reduced.
struct SlowJob {
  double gemm = 300, convolution = 200;  // us, of rank 1; as of others here
  std::string name = "conv";             // of rank 1's convolution
  int more = 0;                          // GEMMs of rank 1 in validate()
  int rows = 64;                         // of rank 1's operands; 0: no shapes are recorded
  int steps = 10;
  bool one_leads = true;  // rank 1 in every step; else another one in each

  std::vector<KinetoJob> jobs() const {
    std::vector<KinetoJob> ranks;
    for (int r = 0; r < 3; ++r) ranks.emplace_back(r, 3);
    int id = 1;
    double at = 1000;
    for (int s = 0; s < steps; ++s) {
      double last = 0;
      std::vector<double> ends, begins;
      for (int r = 0; r < 3; ++r) {
        KinetoJob& job = ranks[static_cast<std::size_t>(r)];
        const bool is_slow = r == (one_leads ? 1 : s % 3);
        double host = at, device = at;
        const auto launch = [&](const std::string& op, const std::string& kernel, double us, int of_rows) {
          device = std::max(device, host + 10);
          if (of_rows > 0) {
            job.shaped(op, host, host + 12, fmt::format("[[{},64],[64,64]]", of_rows));
          } else {
            job.op(op, host, host + 12);
          }
          job.launched(host + 3, device, device + us, id++, kernel);
          device += us;
          host += 15;
        };
        for (int layer = 0; layer < 2; ++layer) {
          launch("aten::mm", "gemm", is_slow ? gemm : 300, rows == 0 ? 0 : is_slow ? rows : 64);
          launch("aten::convolution", is_slow ? name : "conv", is_slow ? convolution : 200, 0);
        }
        const double validates = host;
        for (int i = 0; i < (is_slow ? more : 0); ++i) launch("aten::mm", "gemm", 300, rows);
        if (is_slow && more > 0) job.python("train.py(140): validate", validates, host);
        begins.push_back(device + 5);
        ends.push_back(host);
        last = std::max(last, device + 5);
      }
      for (int r = 0; r < 3; ++r) {
        KinetoJob& job = ranks[static_cast<std::size_t>(r)];
        const auto of = static_cast<std::size_t>(r);
        job.all_reduce(ends[of], begins[of], last + 100, id, s)
            .call("cudaDeviceSynchronize", ends[of] + 8, last + 110, id + 1)
            .python("train.py(90): train_step", at, last + 111)
            .step(s + 1, at, last + 112);
        id += 2;
      }
      at = last + 115;
    }
    return ranks;
  }
};

TEST(SlowWork, IsTheDifferenceToOtherRanks) {
  struct Row {
    const char* what;
    SlowJob job;
    SlowIs is;
    std::string name, line;
  };
  const Row rows[] = {
      {"its GPU", {.gemm = 390, .convolution = 260}, SlowIs::slower, "", "train.py(90): train_step"},
      {"shapes are not known",
       {.gemm = 390, .convolution = 260, .rows = 0},
       SlowIs::longer,
       "",
       "train.py(90): train_step"},
      {"one kernel", {.convolution = 500}, SlowIs::longer, "conv", "train.py(90): train_step"},
      {"its batches", {.gemm = 600, .rows = 128}, SlowIs::larger, "gemm", "train.py(90): train_step"},
      {"it validates", {.more = 2}, SlowIs::more, "gemm", "train.py(140): validate"},
      {"another kernel",
       {.convolution = 700, .name = "slow_conv"},
       SlowIs::others,
       "slow_conv",
       "train.py(90): train_step"},
      {"nothing", {}, SlowIs::unknown, "", ""},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    RunTrace trace = read_jobs(row.job.jobs());
    const SlowWork found = find_slow_work(trace, 1, 0.01);
    EXPECT_EQ(found.is, row.is) << found.sentence;
    EXPECT_EQ(found.name, row.name);
    EXPECT_EQ(found.line, row.line);
    EXPECT_EQ(find_slow_work(trace, 0, 0.01).is, SlowIs::unknown);
    const Analysis analysis = analyse(trace);
    ASSERT_EQ(analysis.last_comer.has_value(), row.is != SlowIs::unknown);
    if (!analysis.last_comer) continue;
    EXPECT_EQ(analysis.last_comer->ranks, std::vector<int>{1});
    EXPECT_GE(analysis.last_comer->confidence, 0.8);
    EXPECT_EQ(look_first(trace, analysis).at(0).line, row.line);
  }
}

// Who is last in few steps may be so by chance: it is never accused with certainty, nor is one of several.
TEST(SlowWork, OfFewStepsIsInDoubt) {
  for (const int steps : {2, 3, 4, 10}) {
    RunTrace trace = read_jobs(SlowJob{.gemm = 600, .steps = steps}.jobs());
    const Analysis analysis = analyse(trace);
    ASSERT_TRUE(analysis.last_comer.has_value()) << steps;
    EXPECT_EQ(analysis.last_comer->doubt.empty(), steps == 10) << steps;
    EXPECT_EQ(analysis.last_comer->confidence <= 0.5, steps < 10) << steps;
    RunTrace uneven = read_jobs(SlowJob{.gemm = 600, .steps = steps, .one_leads = false}.jobs());
    const Analysis of_uneven = analyse(uneven);
    if (of_uneven.last_comer) { EXPECT_LE(of_uneven.last_comer->confidence, 0.5) << steps; }
  }
}

}  // namespace
}  // namespace ms::tracepp
