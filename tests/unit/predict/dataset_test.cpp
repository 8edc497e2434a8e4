// Files of faults, nodes and telemetry in every layout, and what they get wrong.
#include "predict/dataset.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>

#include "base/clock.h"
#include "base/file.h"
#include "health/telemetry/store.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::predict {
namespace {

using test::TempDir;
using test::thrown_by;

class PredictData : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) {
    write_file_atomic(dir_ / name, text);
    return dir_ / name;
  }
  Error refusal(const std::string& faults) {
    const std::string path = file("bad", faults);
    return thrown_by([&] { read_dataset({.faults = path}); });
  }
  TempDir dir_;
};

constexpr const char* kFaults = "node,time,kind,end\nb,864000,GPU,950400\na,172800,fan,\nb,86400,GPU,\n";

TEST_F(PredictData, AFaultARow) {
  const Dataset data = read_dataset({.faults = file("faults", kFaults), .nodes = "2"});
  ASSERT_EQ(data.units.size(), 2U);
  EXPECT_EQ(data.units[0].name, "a");
  EXPECT_EQ(data.kinds, (std::vector<std::string>{"GPU", "fan"}));
  ASSERT_EQ(data.units[1].faults.size(), 2U);
  EXPECT_DOUBLE_EQ(data.units[1].faults[0].day, 1);
  EXPECT_DOUBLE_EQ(data.units[1].faults[1].day, 10);
  EXPECT_DOUBLE_EQ(data.units[1].faults[1].end_day, 11);
  EXPECT_DOUBLE_EQ(data.first_day, 1);
  EXPECT_DOUBLE_EQ(data.last_day, 10) << "an end may be still to come";
}

TEST_F(PredictData, NodesWithoutAFaultAndTheirFacts) {
  const Dataset data =
      read_dataset({.faults = file("faults", kFaults),
                    .nodes = file("nodes", "node,age,model,last\na,3,x,864000\nb,,y,950400\nc,5,x,99950400\n")});
  ASSERT_EQ(data.units.size(), 3U);
  EXPECT_EQ(data.facts, (std::vector<std::string>{"age", "model"}));
  EXPECT_DOUBLE_EQ(data.units[0].stays[0].end_day, 10);
  EXPECT_DOUBLE_EQ(data.units[2].stays[0].end_day, 10) << "no later than what was seen";
  EXPECT_DOUBLE_EQ(data.last_day, 10);
  EXPECT_TRUE(std::isnan(data.units[1].stays[0].facts[0]));
  EXPECT_EQ(data.units[0].stays[0].facts[1], data.units[2].stays[0].facts[1]);
  EXPECT_NE(data.units[0].stays[0].facts[1], data.units[1].stays[0].facts[1]);
}

TEST_F(PredictData, TelemetryInBinsOfADay) {
  const Dataset data = read_dataset({.faults = file("faults", kFaults),
                                     .nodes = file("nodes", "node\na\nb\nc\n"),
                                     .telemetry = {file("telemetry",
                                                        "time,node,metric,value\n86400,a,temp,40\n"
                                                        "90000,a,temp,50\n864000,a,temp,60\n"
                                                        "864000,a,temp,\n259200,c,power,7\n")}});
  EXPECT_EQ(data.metrics, (std::vector<std::string>{"temp", "power"}));
  EXPECT_EQ(data.bins, 10U);
  EXPECT_EQ(data.samples, 4);
  const Unit& a = data.units[0];
  EXPECT_FLOAT_EQ(a.mean[0], 45);
  EXPECT_FLOAT_EQ(a.peak[0], 50);
  EXPECT_FLOAT_EQ(a.mean[9], 60);
  EXPECT_TRUE(std::isnan(a.mean[1]));
  EXPECT_TRUE(data.units[1].mean.empty()) << "b was never measured";
  EXPECT_FLOAT_EQ(data.units[2].mean[data.bins + 2], 7);
}

// Levels stay what they are; counters become their growth, also where one begins anew.
TEST_F(PredictData, TelemetryThatWasCollected) {
  const double yesterday_s = (std::floor(SystemClock().wall_s() / kDay_s) - 1) * kDay_s;
  float errors = 100;
  double at_s = yesterday_s;
  for (const float more : {0.0F, 7.0F, -90.0F}) {
    errors += more;
    at_s += 300;
    health::keep_sample(
        dir_ / "site", "a",
        {.wall_s = at_s, .values = {{"gpu0", "temperature_c", errors / 2}, {"net/eth0", "rx_errors", errors}}}, {});
  }
  const Dataset data =
      read_dataset({.faults = file("faults", fmt::format("node,time,kind\na,{:.0f},GPU\n", yesterday_s)),
                    .nodes = "1",
                    .telemetry = {dir_ / "site"}});
  ASSERT_EQ(data.metrics, (std::vector<std::string>{"gpu temperature_c", "net rx_errors"}));
  EXPECT_FLOAT_EQ(data.units[0].mean[0], (100 + 107 + 17) / 2.0F / 3);
  EXPECT_FLOAT_EQ(data.units[0].peak[data.bins], 17);
  EXPECT_FLOAT_EQ(data.units[0].mean[data.bins], (7 + 17) / 2.0F);
}

TEST_F(PredictData, CollectedTelemetryAsCsv) {
  const Dataset data = read_dataset({.faults = file("faults", kFaults),
                                     .nodes = file("nodes", "node\na\nb\n"),
                                     .telemetry = {file("telemetry",
                                                        "time,node,device,metric,value\n"
                                                        "86400,a,gpu0,temperature_c,40\n"
                                                        "86400,a,gpu1,temperature_c,60\n"
                                                        "86400,a,net/eth0,rx_errors,100\n"
                                                        "90000,a,net/eth0,rx_errors,104\n"
                                                        "93600,a,net/eth0,rx_errors,2\n")}});
  ASSERT_EQ(data.metrics, (std::vector<std::string>{"gpu temperature_c", "net rx_errors"}));
  EXPECT_FLOAT_EQ(data.units[0].mean[0], 50);
  EXPECT_FLOAT_EQ(data.units[0].peak[0], 60);
  EXPECT_FLOAT_EQ(data.units[0].mean[data.bins], 3) << "by 4, then anew by 2";
}

TEST_F(PredictData, LivesOfGpus) {
  const Dataset data =
      read_dataset({.faults = file("lives",
                                   "SN,location,insert,remove,duration,out,event\n"
                                   "1,c11-2c1s4n1,2014-01-01 00:00:00,2014-02-01 00:00:00,0,TRUE,DBE\n"
                                   "1,c11-2c1s4n1,,2014-01-11 12:00:00,,,OTB\n"
                                   "1,c0-0c0s0n3,2014-03-01 00:00:00,2014-05-01 00:00:00,0,FALSE,\n")});
  ASSERT_EQ(data.units.size(), 1U);
  const Unit& gpu = data.units[0];
  ASSERT_EQ(gpu.stays.size(), 2U);
  EXPECT_THAT(gpu.stays[0].facts, testing::ElementsAre(11, 2, 1, 4, 1));
  ASSERT_EQ(gpu.faults.size(), 2U);
  EXPECT_DOUBLE_EQ(gpu.faults[0].day - gpu.stays[0].begin_day, 10.5);
  EXPECT_DOUBLE_EQ(gpu.faults[1].day, gpu.stays[0].end_day);
}

TEST_F(PredictData, TraceOfStartsAndEnds) {
  const auto event = [](const char* node, double day, const char* what) {
    return fmt::format(R"({{"node_id":"{}","event_time":{},"event_type":"fault_{}","fault_type":{{"Class":"GPU"}}}})",
                       node, day, what);
  };
  const Dataset data =
      read_dataset({.faults = file("trace", "[" + event("a", 1, "start") + "," + event("b", 2, "start") + "," +
                                                event("a", 3.5, "end") + "," + event("c", 4, "end") + "]"),
                    .nodes = "3"});
  EXPECT_DOUBLE_EQ(data.units[0].faults[0].end_day, 3.5);
  EXPECT_TRUE(std::isinf(data.units[1].faults[0].end_day)) << "it has not ended";
  EXPECT_TRUE(data.units[2].faults.empty()) << "it began before the trace";
}

// Faults of n00 to n19 and of these units.
std::string faults_of_twenty(const std::string& others) {
  std::string text = "node,time,kind\n";
  for (int i = 0; i < 20; ++i) text += fmt::format("n{:02},{},GPU\n", i, 86400 * i);
  return text + others;
}
std::string twenty_nodes(const std::string& ending, int count = 20) {
  std::string text = "node\n";
  for (int i = 0; i < count; ++i) text += fmt::format("n{:02}{}\n", i, ending);
  return text + "never" + ending + "\n";
}

TEST_F(PredictData, UnitsThatNeverFailedMustBeKnown) {
  const std::string faults = file("faults", faults_of_twenty(""));
  const auto refused = [&](const std::string& nodes, std::vector<std::string> telemetry) {
    const Error error = thrown_by([&] { read_dataset({.faults = faults, .nodes = nodes, .telemetry = telemetry}); });
    EXPECT_EQ(error.kind(), "predict.units");
    return error.message();
  };
  EXPECT_THAT(refused("", {}), testing::HasSubstr("all 20 units of the files have failed"));
  const std::string one = file("one", "time,node,metric,value\n1,n00,temp,1\n");
  EXPECT_THAT(refused("", {one}), testing::HasSubstr("have failed")) << "telemetry of one that did tells of no other";
  EXPECT_THAT(refused("19", {}), testing::HasSubstr("the files name 20 units"));
  EXPECT_THAT(refused("0", {}), testing::HasSubstr("from 1"));
  EXPECT_THAT(refused(file("long", twenty_nodes(".site")), {}),
              testing::HasSubstr("20 of the 20 units that --faults names are not in --nodes (n00 for one)"));
  EXPECT_THAT(refused(file("part", twenty_nodes("", 2)), {}), testing::HasSubstr("18 of the 20 units"));
  const std::string site = file("site", "time,node,metric,value\n1,n00.site,temp,1\n1,n30.site,temp,1\n");
  EXPECT_THAT(refused(file("short", twenty_nodes("")), {site}), testing::HasSubstr("that --telemetry names"));
  EXPECT_THAT(refused("", {site}), testing::HasSubstr("not in --telemetry"));

  const Dataset counted = read_dataset({.faults = faults, .nodes = "400"});
  ASSERT_EQ(counted.units.size(), 400U);
  EXPECT_EQ(counted.units[19].name, "n19");
  EXPECT_TRUE(counted.units[399].name.empty());
  EXPECT_DOUBLE_EQ(counted.units[399].stays.at(0).end_day, 19);
}

TEST_F(PredictData, OneStrangerOfManyIsLeftOutWithANote) {
  const Dataset data = read_dataset(
      {.faults = file("faults", faults_of_twenty("gone,1,GPU\n")), .nodes = file("nodes", twenty_nodes(""))});
  EXPECT_EQ(data.units.size(), 21U) << "those of the table";
  EXPECT_THAT(data.notes,
              testing::ElementsAre("1 of the 21 units that --faults names is not in --nodes (gone for one): left out"));
}

TEST_F(PredictData, TimesInTheWrongOrderAndPipesAreRefused) {
  EXPECT_THAT(refusal("node,time,kind,end\na,86400,GPU,1\n").message(), testing::HasSubstr("bad:2: end '1' is before"));
  const std::string faults = file("faults", kFaults);
  const std::string nodes = file("nodes", "node,first,last\na,9,5\n");
  EXPECT_THAT(thrown_by([&] { read_dataset({.faults = faults, .nodes = nodes}); }).message(),
              testing::HasSubstr("nodes:2: last '5' is before its first"));
  std::string wide = "node";
  for (std::size_t i = 0; i <= kMaxNames; ++i) wide += fmt::format(",f{}", i);
  const std::string facts = file("wide", wide + "\n");
  EXPECT_THAT(thrown_by([&] { read_dataset({.faults = faults, .nodes = facts}); }).message(),
              testing::HasSubstr("513 columns of facts"));
  EXPECT_THAT(thrown_by([] { read_dataset({.faults = "/dev/zero"}); }).message(),
              testing::HasSubstr("no regular file"));
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(thrown_by([&] { read_dataset({.faults = dir_ / "pipe"}); }).message(),
              testing::HasSubstr("no regular file"));
}

TEST_F(PredictData, RefusalsNameFileAndLine) {
  EXPECT_THAT(refusal("node,time,kind\na,1,GPU\nb,soon,GPU\n").message(), testing::HasSubstr("bad:3: time 'soon'"));
  EXPECT_THAT(refusal("node,when\na,1\n").message(), testing::HasSubstr("has no column time"));
  EXPECT_THAT(refusal("[{\"node_id\": 1}]").message(), testing::HasSubstr("node_id"));
  EXPECT_THAT(refusal("[[[").message(), testing::HasSubstr("bad: "));
  EXPECT_EQ(refusal("node,time,kind\n").kind(), "predict.empty");
  EXPECT_THAT(refusal("node,time,kind\na,1,GPU\nb,99000000000,GPU\n").hint(), testing::HasSubstr("one clock"));
}

}  // namespace
}  // namespace ms::predict
