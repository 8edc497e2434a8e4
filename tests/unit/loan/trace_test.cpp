// Traces, curves and demand as files have them, and every way in which they make no sense.
#include "loan/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "support/errors.h"
#include "support/files.h"
#include "unpack/csv.h"

namespace ms::loan {
namespace {

using test::TempDir;
using test::thrown_by;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class LoanTrace : public testing::Test {
 protected:
  std::string spilled(const std::string& text) {
    const std::string path = dir_ / "file.csv";
    write_file_atomic(path, text);
    return path;
  }
  std::string refusal_of_jobs(const std::string& text) {
    const std::string path = spilled(text);
    return thrown_by([&] { read_jobs(path, policy_); }).message();
  }
  std::string refusal_of_demand(const std::string& text) {
    const std::string path = spilled(text);
    return thrown_by([&] { read_demand(path, policy_, 1000); }).message();
  }

  TempDir dir_;
  Policy policy_{.cluster = {.train_nodes = 2, .inference_nodes = 10, .gpus_per_node = 8}};
};

TEST_F(LoanTrace, JobsAreSortedAndCountFromTheFirst) {
  const JobTrace trace = read_jobs(
      spilled("timestamp,duration,num_gpus,vc\r\n2017-10-09 07:01:55,66.0,1,a\r\n\r\n2017-10-09 07:00:55,10,8,b\r\n"),
      policy_);
  ASSERT_EQ(trace.jobs.size(), 2U);
  EXPECT_DOUBLE_EQ(trace.jobs[0].submit_s, 0);
  EXPECT_EQ(trace.jobs[0].gpus, 8);
  EXPECT_DOUBLE_EQ(trace.jobs[1].submit_s, 60);
  EXPECT_DOUBLE_EQ(trace.jobs[1].estimate_s, 66);
  EXPECT_DOUBLE_EQ(trace.span_s, 60);
  EXPECT_DOUBLE_EQ(trace.gpu_seconds(), 66 + 80);
}

TEST_F(LoanTrace, AFileMaySayItsOwnLimitsAndElasticJobs) {
  policy_.jobs.gpus_times = 2;
  policy_.jobs.elastic_percent = 100;
  const JobTrace trace =
      read_jobs(spilled("submit,duration,gpus,max_gpus,time_limit\n0,10,2,4,100\n1,10,2,2,50\n2,10,0,0,1\n"), policy_);
  ASSERT_EQ(trace.jobs.size(), 2U);
  EXPECT_EQ(trace.without_gpus, 1);
  EXPECT_EQ(trace.jobs[0].max_gpus, 8);
  EXPECT_FALSE(trace.jobs[1].elastic());
  EXPECT_DOUBLE_EQ(trace.jobs[0].estimate_s, 100);
}

TEST_F(LoanTrace, TheLargestJobsAreElastic) {
  policy_.jobs.elastic_percent = 50;
  policy_.jobs.max_times = 3;
  const JobTrace trace = read_jobs(spilled("submit,duration,gpus\n0,9,1\n1,9,8\n2,9,1\n3,9,4\n"), policy_);
  EXPECT_EQ(trace.jobs[0].max_gpus, 1);
  EXPECT_EQ(trace.jobs[1].max_gpus, 24);
  EXPECT_EQ(trace.jobs[3].max_gpus, 12);
}

TEST_F(LoanTrace, TheBusiestDaysAreReplayed) {
  policy_.jobs.days = 1;
  const JobTrace trace =
      read_jobs(spilled("submit,duration,gpus\n0,9,1\n86400,1,1\n86401,2,1\n172800,9,1\n259200,9,1\n"), policy_);
  ASSERT_EQ(trace.jobs.size(), 2U);
  EXPECT_DOUBLE_EQ(trace.origin_s, 86'400);
  EXPECT_DOUBLE_EQ(trace.jobs[1].work_s, 2);
}

TEST_F(LoanTrace, CopiesAreAsManyAsAskedFor) {
  policy_.jobs.copies = 1.5;
  std::string text = "submit,duration,gpus\n";
  for (int i = 0; i < 1000; ++i) text += fmt::format("{},5,1\n", i);
  const JobTrace trace = read_jobs(spilled(text), policy_);
  EXPECT_NEAR(static_cast<double>(trace.jobs.size()), 1500, 60);  // four standard deviations of a thousand coins
  EXPECT_TRUE(std::is_sorted(trace.jobs.begin(), trace.jobs.end(),
                             [](const TraceJob& a, const TraceJob& b) { return a.submit_s < b.submit_s; }));
}

TEST_F(LoanTrace, RefusesJobsThatMakeNoSense) {
  const std::string names = "submit,duration,gpus\n";
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "is empty"},
           {names, "holds no job"},
           {names + "0,1,0\n", "holds no job"},
           {"submit,gpus\n0,1\n", "has no column duration"},
           {names + "0,1\n", "file.csv:2 has 2 cells, but the first line names 3"},
           {names + "0,1,1\n\nx,1,1\n", "file.csv:4: submit 'x' is neither seconds nor a time"},
           {names + "0,-1,1\n", "file.csv:2: duration '-1' is not from 0 to"},
           {names + "-5e300,1,1\n", "submit '-5e300' is no time"},
           {names + "0,1,1\n9e10,1,1\n", "its jobs are 1041666d16h apart"},
           {names + "0,nan,1\n", "duration 'nan' is not a number"},
           {names + "0,1e400,1\n", "duration '1e400' is not a number"},
           {names + "0,1,99\n", "the job needs 99 GPUs, training has 16 of its own"},
           {"submit,duration,gpus,max_gpus\n0,1,4,3\n", "max_gpus '3' is not from 4"},
           {"submit,duration,gpus,max_gpus\n0,1,1,900000\n", "takes up to 900000 has more than 10000 extra workers"},
           {names + "0,1\x1b[2J,1\n", "duration '1?[2J' is not a number"},
       }) {
    EXPECT_THAT(refusal_of_jobs(text), HasSubstr(words));
  }
  EXPECT_THAT(thrown_by([&] { read_jobs("nowhere.csv", policy_); }).message(), HasSubstr("cannot open nowhere.csv"));
}

TEST_F(LoanTrace, DemandIsNodesFromEachTimeOn) {
  const Demand demand = read_demand(spilled("time_s,gpus\n100,8\n110,9\n120,16\n130,0\n5000,8\n"), policy_, 1000);
  EXPECT_THAT(demand.steps, ElementsAre(Pair(0, 1), Pair(10, 2), Pair(30, 0), Pair(4900, 1)));
  EXPECT_EQ(demand.at(9), 1);
  EXPECT_EQ(demand.at(10), 2);
  EXPECT_EQ(demand.at(1e9), 1);
}

TEST_F(LoanTrace, DemandOfInstances) {
  const std::string text = "name,gpu_request,creation_time,deletion_time\na,8,,50\nb,8,,\nc,0,,\nd,16,20,\n";
  EXPECT_THAT(read_demand(spilled(text), policy_, 1000).steps, ElementsAre(Pair(0, 2), Pair(20, 4), Pair(50, 3)));
  // Parts of GPUs add up: sixteen halves are a node.
  std::string halves = "gpu_request,creation_time,deletion_time\n8,0,\n";
  for (int i = 0; i < 16; ++i) halves += "0.5,0,9000\n";
  EXPECT_THAT(read_demand(spilled(halves), policy_, 1000).steps, ElementsAre(Pair(0, 2), Pair(9000, 1)));
  policy_.demand = {.low_percent = 20, .high_percent = 100};
  EXPECT_THAT(read_demand(spilled(text), policy_, 1000).steps, ElementsAre(Pair(0, 2), Pair(20, 10), Pair(50, 6)));
}

TEST_F(LoanTrace, RefusesDemandThatMakesNoSense) {
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"time_s,nodes\n", "holds no demand"},
           {"time_s\n1\n", "has no column nodes or gpus"},
           {"time_s,nodes\n0,11\n", "inference needs 11 nodes at 0 s, and has 10"},
           {"time_s,nodes\n5,1\n5,2\n", "file.csv:3: time_s '5' is not after the row before it"},
           {"time_s,nodes\n5,-1\n", "nodes '-1' is not from 0"},
           {"gpu_request,creation_time,deletion_time\n1,9,3\n", "deletion_time '3' is not from 9"},
       }) {
    EXPECT_THAT(refusal_of_demand(text), HasSubstr(words));
  }
}

TEST_F(LoanTrace, CurvesAreTheBestRatesAndNeverFall) {
  const SpeedCurve curve = SpeedCurve::read(
      spilled("num_replicas,local_bsz,step_time\n4,10,1\n4,20,1.6\n8,20,2\n12,10,2\n"));  // 50, 80, 60 samples/s
  EXPECT_DOUBLE_EQ(curve.at(4), 50);
  EXPECT_DOUBLE_EQ(curve.at(2), 25);
  EXPECT_DOUBLE_EQ(curve.at(6), 65);
  EXPECT_DOUBLE_EQ(curve.at(12), 80);
  EXPECT_DOUBLE_EQ(curve.at(100), 80);
  EXPECT_DOUBLE_EQ(curve.speedup(4, 8), 1.6);
  EXPECT_DOUBLE_EQ(SpeedCurve().speedup(2, 6), 3);
}

TEST_F(LoanTrace, ReadsThePublishedTraces) {
  const std::string folder = std::string(MS_SOURCE_DIR) + "/../shared/data/cluster/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "../shared/data/cluster is not here";
  policy_ = {};
  policy_.jobs.days = 15;
  policy_.jobs.curves = {folder + "pollux_scalability_bert.csv"};
  const JobTrace trace = read_jobs(folder + "philly_days_0_70.csv.gz", policy_);
  EXPECT_EQ(trace.jobs.size(), 28'355U);
  EXPECT_NEAR(trace.curves[0].speedup(8, 16), 1.86, 0.01);
  EXPECT_GT(read_demand(folder + "alibaba_dlrm_inference.csv.gz", policy_, trace.span_s).steps.size(), 100U);
}

}  // namespace
}  // namespace ms::loan
