// What ranks did that came last to collectives: a planned set of made jobs, each with several seeds. The stated
// confidence holds if nothing wrong has a high one, and if most causes are found.
#include "tracepp/findings/late_causes.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "planned_jobs.h"
#include "tracepp/report/json.h"
#include "tracepp/report/report.h"

namespace ms::tracepp {
namespace {

using ::testing::HasSubstr;

constexpr double kHighConfidence = 0.8;

struct PlannedAnswer {
  Planned planned;
  int rank = -1;              // -1: none is at fault
  std::string cause = {};     // of its lateness
  std::string sentence = {};  // in what to look at first
};

const std::vector<PlannedAnswer>& planned_set() {
  static const std::vector<PlannedAnswer> set{
      {Planned::healthy, -1},
      {Planned::slow_loader, 1, "data"},
      {Planned::slow_rank, 1, "kernel"},
      {Planned::item, -1, "", "because the host waits for the device"},
      {Planned::pageable, -1, "", "only copy or set memory"},
      {Planned::no_overlap, -1, "", "0.0 % of it is hidden under computing"},
      {Planned::imbalance, -1},
      {Planned::collection, 1, "collection"},
      {Planned::checkpoints, 0, "save"},
      {Planned::recompilation, 1, "compilation"},
      {Planned::loader_and_rank, 1, "data"},
  };
  return set;
}

TEST(LateCauses, OfThePlannedSetAreRightOrInDoubt) {
  std::size_t cases = 0, right = 0, wrong = 0;
  for (const PlannedAnswer& of : planned_set()) {
    for (unsigned seed = 1; seed <= 20; ++seed) {
      RunTrace trace = read_jobs(PlannedJob{.planned = of.planned, .seed = seed}.jobs());
      const Analysis analysis = analyse(trace);
      ++cases;
      const std::optional<Finding>& found = analysis.last_comer;
      bool is_right = found.has_value() == (of.rank >= 0);
      std::string cause;
      if (found) {
        const auto late = std::ranges::find_if(
            analysis.late, [&](const LateRank& l) { return trace.ranks[l.rank].rank == found->ranks[0]; });
        if (late != analysis.late.end() && late->cause() != nullptr) {
          cause = late->cause()->of;
          if (cause != of.cause && late->confidence(*late->cause()) >= kHighConfidence) ++wrong;
        }
        is_right = is_right && found->ranks[0] == of.rank && cause == of.cause;
        if (found->ranks[0] != of.rank && found->confidence >= kHighConfidence) ++wrong;
      }
      const std::vector<Advice> list = look_first(trace, analysis);
      std::string all;
      for (const Advice& advice : list) {
        all += advice.sentence + "\n";
        if (of.rank < 0 && advice.is == Advice::Is::fault && std::abs(advice.confidence) >= kHighConfidence) ++wrong;
      }
      is_right = is_right && all.find(of.sentence) != std::string::npos;
      right += is_right ? 1 : 0;
      EXPECT_TRUE(is_right) << static_cast<int>(of.planned) << " seed " << seed << ": " << cause << "\n" << all;
    }
  }
  EXPECT_EQ(wrong, 0U) << "of " << cases;
  EXPECT_EQ(right, cases);
}

TEST(LateCauses, AddUpToTheLateness) {
  for (const PlannedAnswer& of : planned_set()) {
    RunTrace trace = read_jobs(PlannedJob{.planned = of.planned}.jobs());
    for (const LateRank& late : analyse(trace).late) {
      std::int64_t classes_ns = 0, causes_ns = 0;
      for (const LateCause& cause : late.classes) classes_ns += cause.more_ns;
      for (const LateCause& cause : late.causes) causes_ns += cause.more_ns;
      EXPECT_NEAR(1e-3 * static_cast<double>(classes_ns), 1e-3 * static_cast<double>(late.late_ns), 1);
      EXPECT_NEAR(1e-3 * static_cast<double>(causes_ns), 1e-3 * static_cast<double>(late.late_ns), 1);
    }
  }
}

TEST(LateCauses, AreNamedInTheFindingAndInJson) {
  RunTrace trace = read_jobs(PlannedJob{.planned = Planned::slow_loader}.jobs());
  const Analysis analysis = analyse(trace);
  ASSERT_TRUE(analysis.last_comer);
  EXPECT_THAT(analysis.last_comer->evidence, HasSubstr("data (enumerate(DataLoader)"));
  const auto json = nlohmann::json::parse(dump(report_json(trace, analysis)))["late"];
  EXPECT_EQ(json[0]["rank"], 1);
  EXPECT_EQ(json[0]["cause"], "data");
  EXPECT_GE(json[0]["confidence"].get<double>(), kHighConfidence);
  EXPECT_EQ(json[0]["instead"][0]["of"], "data");
}

TEST(LateCauses, ARankThatWaitsItselfIsInDoubt) {
  // Rank 1 comes last because it waits in another group, whose other members were not traced.
  std::vector<KinetoJob> ranks;
  for (int r = 0; r < 2; ++r) {
    KinetoJob& job = ranks.emplace_back(r, 2);
    for (int s = 0; s < 12; ++s) {
      const double at = 3000 * s, late = r == 1 ? 1000 : 0;
      job.step(s + 1, at, at + 3000).launched(at, at + 10, at + 510, 10 * s);
      if (r == 1) {
        job.call("cudaLaunchKernelExC", at + 6, at + 8, 10 * s + 1);
        job.kernel("ncclDevKernel_SendRecv", at + 512, at + 512 + late, 10 * s + 1);
      }
      job.launched(at + 20, at + 515 + late, at + 1015 + late, 10 * s + 2);
      job.all_reduce(at + 30, at + 1017 + late, at + 2900, 10 * s + 3, s);
      job.call("cudaStreamSynchronize", at + 40, at + 2905, 10 * s + 4);
    }
  }
  RunTrace trace = read_jobs(ranks);
  const Analysis analysis = analyse(trace);
  ASSERT_TRUE(analysis.last_comer);
  EXPECT_NE(analysis.last_comer->doubt, "");
  EXPECT_LT(analysis.last_comer->confidence, kHighConfidence);
}

}  // namespace
}  // namespace ms::tracepp
