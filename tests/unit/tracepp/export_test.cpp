// Exports: JSON that a parser takes and whose slices nest, lines of a table, and what all formats have in common.
#include "tracepp/export/export.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "exported_run.h"
#include "foreign_files.h"
#include "tracepp/read/read.h"

namespace ms::tracepp {
namespace {

TEST(ExportChrome, HasTheWallClockAndIsNotReadBack) {
  const ForeignFiles files;
  RunTrace trace = exported_run();
  trace.ranks.front().clock_ns = kOrigin - 7;
  trace.ranks.front().realtime_ns = 1'800'000'000'000'000'000;
  export_chrome(trace, files / "x.json");
  EXPECT_EQ(nlohmann::json::parse(bytes_of(files / "x.json"))["baseTimeNanoseconds"], 1'800'000'000'000'000'007);
  try {
    read_run({files / "x.json"});
    FAIL() << "it was read";
  } catch (const Error& error) { EXPECT_THAT(error.what(), testing::HasSubstr("made by ms-tracepp export")); }
}

TEST(ExportChrome, IsValidJson) {
  const ForeignFiles files;
  const RunTrace trace = exported_run();
  export_chrome(trace, files / "x.json");
  const std::string text = bytes_of(files / "x.json");
  EXPECT_EQ(text.find("</script>"), std::string::npos);
  const nlohmann::json document = nlohmann::json::parse(text);
  EXPECT_EQ(document["baseTimeNanoseconds"], kOrigin);
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  std::vector<Slice> slices;
  std::map<std::string, int> phases;
  std::map<std::string, std::vector<nlohmann::json>> arrows;
  for (const nlohmann::json& event : document["traceEvents"]) {
    ++phases[event["ph"]];
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
    if (event["name"] == "thread_name") threads[{event["pid"], event["tid"]}] = event["args"]["name"];
    if (event["ph"] == "X") {
      const auto ns = [](const nlohmann::json& us) { return static_cast<std::int64_t>(us.get<double>() * 1000 + 0.5); };
      slices.push_back({.track = event["pid"].dump() + "/" + event["tid"].dump(),
                        .name = event["name"],
                        .begin = ns(event["ts"]),
                        .end = ns(event["ts"]) + ns(event["dur"])});
    }
    if (event["ph"] == "s" || event["ph"] == "f") arrows[event["id"]].push_back(event);
  }
  EXPECT_EQ(processes[0], "rank 0 (dp 0 pp 0 tp 0) node0");
  EXPECT_EQ(processes[1], std::string("rank 1 (dp 0 pp 1 tp 0) ") + kHostile);
  EXPECT_EQ(phases["X"], 2 * 3 * 5);
  EXPECT_EQ(phases["B"], 2);
  EXPECT_EQ(phases["i"], 2 + 3);  // the ops that were issued, and the ends of arrows
  EXPECT_EQ(phases["s"], 3);
  EXPECT_EQ(phases["f"], 3);
  expect_nested(slices);
  std::vector<std::string> names;
  for (const auto& [place, name] : threads) {
    if (place.first == 0) names.push_back(name);
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("host", "compute", "tp", "tp 2", "pp"));
  for (const auto& [id, ends] : arrows) {
    ASSERT_EQ(ends.size(), 2U);
    EXPECT_EQ(ends[0]["pid"], 0);
    EXPECT_EQ(ends[1]["pid"], 1);
    EXPECT_EQ(ends[1]["bp"], "e");
    const auto ends_arrow = [&](const nlohmann::json& event) {
      return event["name"] == "arrived" && event["pid"] == 1 && event["tid"] == ends[1]["tid"] &&
             event["ts"] == ends[1]["ts"];
    };
    EXPECT_EQ(std::ranges::count_if(document["traceEvents"], ends_arrow), 1);
    const auto ends_there = [&](const nlohmann::json& event) {
      return event["ph"] == "X" && event["tid"] == ends[1]["tid"] && event["pid"] == 1 &&
             std::abs(event["ts"].get<double>() + event["dur"].get<double>() - ends[1]["ts"].get<double>() - 0.001) <
                 1e-6;
    };
    EXPECT_GE(std::ranges::count_if(document["traceEvents"], ends_there), 1);
  }
  EXPECT_EQ(std::ranges::count(slices, "forward c0", &Slice::name), 6);
  EXPECT_EQ(std::ranges::find(slices, "forward c0", &Slice::name)->begin, 1);
}

// As a reader would take it who knows nothing of who wrote it.
TEST(ExportChrome, IsReadByChromeReaders) {
  const ForeignFiles files;
  const RunTrace trace = exported_run();
  export_chrome(trace, files / "x.json.gz");
  EXPECT_TRUE(bytes_of(files / "x.json.gz").starts_with("\x1f\x8b"));
  export_chrome(trace, files / "x.json");
  std::string text = bytes_of(files / "x.json");
  text.replace(text.find("ms-tracepp"), 10, "another");
  const RunTrace again = read_run({files.put("another.json", text)});
  ASSERT_EQ(again.ranks.size(), 2U);
  EXPECT_EQ(again.ranks[1].rank, 1);
  EXPECT_EQ(again.ranks[0].events.size(), 16U);
  EXPECT_EQ(event_named(again, "forward c0").begin_ns, kOrigin + 1);
  EXPECT_EQ(event_named(again, "forward c0").step, 0);
}

TEST(ExportCsv, HasOneLineAnEvent) {
  const ForeignFiles files;
  export_csv(exported_run(), files / "x.csv");
  const std::string text = bytes_of(files / "x.csv");
  EXPECT_TRUE(
      text.starts_with("rank,dp,pp,tp,host,step,kind,purpose,chunk,microbatch,group,sequence,bytes,state,begin_ns,"
                       "duration_ns,name\r\n"));
  EXPECT_THAT(text, testing::HasSubstr("0,0,0,0,node0,1,forward,,0,4,,,,ended,1700000000001000124,500000,\r\n"));
  EXPECT_THAT(text, testing::HasSubstr(
                        "0,0,0,0,node0,2,all_reduce,forward,,,tp[dp 0 pp 0],2,64,ended,1700000000002000223,300,\r\n"));
  EXPECT_THAT(text, testing::HasSubstr(",other,,,,,,,begun,1700000000004000123,,\"</script>\"\"%s\\,\n\"\r\n"));
  EXPECT_THAT(text, testing::HasSubstr("issued,,,\"nul" + std::string(1, '\0')));
  RunTrace formula = exported_run();
  formula.ranks[0].host = "=cmd()";
  export_csv(formula, files / "y.csv");
  EXPECT_THAT(bytes_of(files / "y.csv"), testing::HasSubstr(",'=cmd(),"));
}

TEST(Exports, ContainOnlyTheSelection) {
  const ForeignFiles files;
  const RunTrace trace = exported_run();
  const ExportOptions options{.ranks = {1}, .first_step = 1, .last_step = 1};
  export_csv(trace, files / "x.csv", options);
  const std::string text = bytes_of(files / "x.csv");
  EXPECT_EQ(std::ranges::count(text, '\r'), 1 + 5);
  export_chrome(trace, files / "x.json", options);
  const nlohmann::json document = nlohmann::json::parse(bytes_of(files / "x.json"));
  for (const nlohmann::json& event : document["traceEvents"]) {
    EXPECT_EQ(event["pid"], 1);
    if (event["ph"] != "X") continue;
    EXPECT_EQ(event["args"]["step"], 1);
  }
  export_perfetto(trace, files / "x.perfetto", options);
  EXPECT_EQ(decode_perfetto(bytes_of(files / "x.perfetto")).slices.size(), 5U);
  EXPECT_TRUE(decode_perfetto(bytes_of(files / "x.perfetto")).open.empty());
}

TEST(Exports, LeaveNoFileOnFailure) {
  const ForeignFiles files;
  for (auto* const exporter : {&export_chrome, &export_csv, &export_perfetto}) {
    try {
      exporter(exported_run(), files / "absent/x", {});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), "file.create");
      EXPECT_EQ(error.blame(), Blame::user);
    }
    std::filesystem::create_directories(files / "taken");
    EXPECT_THROW(exporter(exported_run(), files / "taken", {}), Error);  // is a directory
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(files.path())) ++count;
    EXPECT_EQ(count, 1U);
  }
}

TEST(Exports, HandleEmptyTraces) {
  const ForeignFiles files;
  export_chrome({}, files / "x.json");
  EXPECT_TRUE(nlohmann::json::parse(bytes_of(files / "x.json"))["traceEvents"].empty());
  export_perfetto({}, files / "x.perfetto");
  EXPECT_EQ(bytes_of(files / "x.perfetto"), "");
  export_csv({}, files / "x.csv");
  EXPECT_EQ(std::ranges::count(bytes_of(files / "x.csv"), '\n'), 1);
}

}  // namespace
}  // namespace ms::tracepp
