#include "ckpt/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "sample.h"

namespace ms::ckpt {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr double kNoon = 1769860800;  // 2026-01-31T12:00:00Z

Found found_of(std::int64_t step, Condition condition, std::string problem = {}) {
  Found found;
  found.step = step;
  found.name = step_name(step);
  found.path = "ck/" + found.name;
  found.condition = condition;
  found.problem = std::move(problem);
  if (condition == Condition::complete) {
    found.manifest = sample::manifest_of(step, {});
    FileEntry file{.name = "rank-00000.h5", .size_bytes = 3 << 20, .hashes = {1}, .pieces = {}};
    for (const Piece& piece : sample::file_of({}, 0).pieces) file.pieces.push_back({.piece = piece, .offset = 0});
    found.manifest->files = {file};
  }
  return found;
}

std::vector<Found> three() {
  return {found_of(10, Condition::complete), found_of(20, Condition::complete),
          found_of(30, Condition::saving, "manifest.json is missing")};
}

TEST(Report, AListSaysWhatARunResumesFrom) {
  const std::vector<Found> found = three();
  ASSERT_NE(resume_point(found), nullptr);
  EXPECT_EQ(resume_point(found)->step, 20);
  const std::string text = list_text("ck", found, kNoon + 7200);
  EXPECT_THAT(text, HasSubstr("2h00m"));
  EXPECT_THAT(text, HasSubstr("3.0 MiB"));
  EXPECT_THAT(text, HasSubstr("left by a save that was killed"));
  EXPECT_THAT(text, HasSubstr("a run resumes from ck/step-00000020\n"));
  EXPECT_THAT(list_text("ck", {found[2]}, kNoon), HasSubstr("ms-train run --fresh begins at step 0"));
  EXPECT_EQ(list_text("ck", {}, kNoon), "ck holds no checkpoint\n");
}

TEST(Report, TheReasonOfADamagedOneIsWhatIsSeen) {
  EXPECT_EQ(why(found_of(1, Condition::complete)), "");
  EXPECT_EQ(why(found_of(1, Condition::incomplete, "x is missing")), "x is missing");
  EXPECT_EQ(why(found_of(1, Condition::damaged, "x is missing")), "x is missing");
  EXPECT_THAT(why(found_of(1, Condition::damaged)), HasSubstr("found damaged"));
  EXPECT_THAT(why(found_of(1, Condition::deleting)), HasSubstr("left by a deletion"));
}

TEST(Report, AListAsJson) {
  const json document = json::parse(list_json("ck", three()));
  EXPECT_EQ(document["schema"], 1);
  EXPECT_EQ(document["resume_from"], "ck/step-00000020");
  ASSERT_EQ(document["checkpoints"].size(), 3U);
  const json& newest = document["checkpoints"][1];
  EXPECT_EQ(newest["step"], 20);
  EXPECT_EQ(newest["path"], "ck/step-00000020");
  EXPECT_EQ(newest["complete"], true);
  EXPECT_EQ(newest["problem"], nullptr);
  EXPECT_EQ(newest["mesh"]["dp"], 1);
  EXPECT_EQ(newest["size_bytes"], 3 << 20);
  const json& saving = document["checkpoints"][2];
  EXPECT_EQ(saving["complete"], false);
  EXPECT_EQ(saving["condition"], "saving");
  EXPECT_THAT(saving["problem"].get<std::string>(), HasSubstr("being saved"));
  EXPECT_EQ(saving["created"], nullptr);
  EXPECT_EQ(json::parse(list_json("ck", {}))["resume_from"], nullptr);
  EXPECT_TRUE(json::parse(list_json("ck\xff", {}))["dir"].is_string()) << "bytes that are no UTF-8 are replaced";
}

TEST(Report, DataAndContextParallelRanksStandApart) {
  struct Case {
    int dp;
    std::string config, row, line;
    json dp_json, cp_json;
  };
  for (const Case& c : {Case{4, "[mesh]\ndp = 2\ncp = 2  # set by file\n", "2 x 2 x 1 x 1", "dp 2 x cp 2 x pp 1", 2, 2},
                        Case{4, "[mesh]\ncp = 1\n", "4 x 1 x 1 x 1", "dp 4 x cp 1 x pp 1", 4, 1},
                        Case{1, "", "1 x 1 x 1 x 1", "dp 1 x cp 1 x pp 1", 1, 1},
                        // A configuration that does not tell, or that is not of this checkpoint.
                        Case{4, "[model]\ncp = 2\n", "4 x ? x 1 x 1", "dp x cp 4 x pp 1", 4, nullptr},
                        Case{4, "[mesh]\ncp = 3\n", "4 x ? x 1 x 1", "dp x cp 4 x pp 1", 4, nullptr}}) {
    Found found = found_of(20, Condition::complete);
    found.manifest->dp = c.dp;
    found.manifest->config = c.config;
    EXPECT_THAT(list_text("ck", {found}, 0), HasSubstr(c.row)) << c.config;
    EXPECT_THAT(show_text(found, false), HasSubstr(fmt::format("{}: {}", c.dp == 1 ? "1 rank" : "4 ranks", c.line)));
    const json mesh = json::parse(show_json(found))["mesh"];
    EXPECT_EQ(mesh["dp"], c.dp_json);
    EXPECT_EQ(mesh["cp"], c.cp_json);
  }
}

TEST(Report, ShowsAManifest) {
  Found found = found_of(20, Condition::complete);
  found.pinned = true;
  const std::string text = show_text(found, false);
  for (const char* part : {"complete, pinned", "1 rank: ", "2, 34 elements, fp32, with the optimizer's state",
                           "160 samples trained on, seed 1234, source feedc0de", "1, 3.0 MiB"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("6 x 4")));
  EXPECT_THAT(show_text(found, true), HasSubstr("6 x 4  f32   weight, exp_avg, exp_avg_sq"));
  const json document = json::parse(show_json(found));
  EXPECT_EQ(document["schema"], 1);
  EXPECT_EQ(document["parameters"][0]["name"], "a");
  EXPECT_EQ(document["parameters"][0]["rows"], 6);
  EXPECT_EQ(document["parameters"][0]["states"].size(), 3U);
  EXPECT_EQ(document["data"]["samples"], 160);
  EXPECT_EQ(document["config"], found.manifest->config);
}

TEST(Report, TerminalsAreToldNothingByAManifest) {
  Found found = found_of(20, Condition::complete);
  Manifest& m = *found.manifest;
  for (std::string* text : {&m.version, &m.created, &m.run, &m.dtype, &m.data.source, &m.rng})
    *text = "a\x1b[2Jb\xc2\x9b";
  found.problem = "c\x1b]0;d\a";
  found.condition = Condition::incomplete;
  for (const std::string& text : {show_text(found, true), list_text("ck", {found}, kNoon)}) {
    EXPECT_THAT(text, HasSubstr("a?[2Jb??"));
    EXPECT_THAT(text, HasSubstr("c?]0;d?"));
    for (const char c : text) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << text;
  }
  Diff diff;
  diff.config = {{"k\x1b", "v\x1b", "w\x9b"}};
  EXPECT_THAT(diff_text("A", "B", diff, false), HasSubstr("v? | w?"));
}

TEST(Report, VerificationListsTenProblemsOfEach) {
  Verified bad{.path = "ck/step-00000010", .step = 10, .size_bytes = 5};
  for (int i = 0; i < 12; ++i) bad.problems.push_back(fmt::format("problem {}", i));
  const std::vector<Verified> both{{.path = "ck/step-00000005", .step = 5, .size_bytes = 2048}, bad};
  const std::string text = verify_text(both);
  EXPECT_THAT(text, HasSubstr("ck/step-00000005: sound, 2.0 KiB\n"));
  EXPECT_THAT(text, HasSubstr("ck/step-00000010: not sound\n  problem 0\n"));
  EXPECT_THAT(text, HasSubstr("  problem 9\n  and 2 more\n"));
  EXPECT_EQ(json::parse(verify_json(both))["sound"], false);
  EXPECT_EQ(json::parse(verify_json(both))["checkpoints"][1]["problems"].size(), 12U);
  EXPECT_EQ(json::parse(verify_json({both[0]}))["sound"], true);
  // What the system refuses to read is not said to be damaged.
  const Verified refused{.path = "ck/step-00000015", .problems = {"Permission denied"}, .unreadable = true};
  EXPECT_EQ(verify_text({refused}), "ck/step-00000015: not judged, for it cannot be read\n  Permission denied\n");
  EXPECT_EQ(json::parse(verify_json({refused}))["checkpoints"][0]["unreadable"], true);
}

TEST(Report, ADiffShowsWhatDiffers) {
  Diff same;
  same.config = {{"mesh.dp", "2", ""}};
  same.states = {{.name = "a", .state = State::weight, .rows = 6, .cols = 4, .values = {.elements = 24}}};
  std::string text = diff_text("A", "B", same, false);
  EXPECT_THAT(text, HasSubstr("mesh.dp"));
  EXPECT_THAT(text, HasSubstr("2 | (none)"));
  EXPECT_THAT(text, HasSubstr("1 of 1 states equal\nthe same training state\n"));
  EXPECT_THAT(text, Not(HasSubstr("exp_avg")));
  EXPECT_THAT(diff_text("A", "B", same, true), HasSubstr("equal"));

  Diff other = same;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  other.states.push_back({.name = "a",
                          .state = State::exp_avg,
                          .rows = 6,
                          .cols = 4,
                          .values = {.elements = 24, .differing = 3, .max_abs = nan, .relative_l2 = 0.5}});
  text = diff_text("A", "B", other, false);
  EXPECT_THAT(text, HasSubstr("exp_avg"));
  EXPECT_THAT(text, HasSubstr("1 of 2 states equal\ndifferent training states\n"));
  const json document = json::parse(diff_json("A", "B", other));
  EXPECT_EQ(document["equal"], false);
  EXPECT_EQ(document["config"][0]["b"], nullptr);
  EXPECT_EQ(document["states"][1]["max_abs"], nullptr);
  EXPECT_EQ(document["states"][1]["relative_l2"], 0.5);
}

TEST(Report, PruneAndRepairSayWhatTheyDid) {
  Pruned pruned{.dir = "ck", .dry_run = true, .gone = {found_of(10, Condition::complete)}, .kept = 1};
  EXPECT_EQ(prune_text(pruned),
            "would remove ck/step-00000010, 3.0 MiB\n1 checkpoint would go in 3.0 MiB, 1 would stay\n");
  pruned.dry_run = false;
  EXPECT_EQ(prune_text(pruned), "removed ck/step-00000010, 3.0 MiB\n1 checkpoint gone in 3.0 MiB, 1 stay\n");
  EXPECT_EQ(json::parse(prune_json(pruned))["freed_bytes"], 3 << 20);

  RepairReport report;
  EXPECT_EQ(repair_text("ck", report),
            "ck: nothing to repair\nno checkpoint is complete: ms-train run --fresh begins at step 0\n");
  report.repairs = {
      {.path = "ck/step-00000030", .remedy = Remedy::set_to_damaged, .reasons = {"block 3"}, .now = "ck/d"}};
  report.resume_from = found_of(20, Condition::complete);
  EXPECT_EQ(repair_text("ck", report),
            "set to damaged ck/step-00000030, now ck/d\n  block 3\na run resumes from ck/step-00000020\n");
  EXPECT_EQ(json::parse(repair_json("ck", report))["repairs"][0]["now"], "ck/d");
}

TEST(Report, ABenchmarkIsRatios) {
  BenchReport report{.dir = "ck", .size_bytes = 1 << 20, .rounds = 3, .threads = 1, .direct = true};
  report.rows = {{.name = "plain write", .doc = "x", .bytes_per_s = 1e9, .cpu_per_s = 0.5, .against = {}, .ratio = 1},
                 {.name = "checkpoint write",
                  .doc = "y",
                  .bytes_per_s = 2e9,
                  .cpu_per_s = 0.25,
                  .against = "plain write",
                  .ratio = 2}};
  EXPECT_THAT(bench_text(report), HasSubstr("2.00  25 %   2.00  plain write"));
  EXPECT_THAT(bench_text(report), HasSubstr("past the page cache"));
  const json document = json::parse(bench_json(report));
  EXPECT_EQ(document["rows"][0]["ratio"], nullptr);
  EXPECT_EQ(document["rows"][1]["ratio"], 2);
}

}  // namespace
}  // namespace ms::ckpt
