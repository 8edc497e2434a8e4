// Gaps in a run's traces are told, and nobody is blamed for them.
#include "tracepp/gaps.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "foreign_files.h"
#include "trace/format.h"
#include "trace/recorder.h"
#include "tracepp/findings/suspects.h"
#include "tracepp/read/read.h"
#include "tracepp/synthetic.h"

namespace ms::tracepp {
namespace {

using Is = Fault::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

RunTrace run_of(const mesh::Mesh& mesh, const std::vector<Fault>& faults = {}) {
  SyntheticRun run;
  run.mesh = mesh;
  run.faults = faults;
  RunTrace trace = make_run(run);
  trace.source = &kOwnSource;
  return trace;
}

bool names_somebody(const Diagnosis& diagnosis) {
  return std::ranges::any_of(diagnosis.findings,
                             [](const Finding& finding) { return is_fault(finding) && finding.doubt.empty(); });
}

TEST(Gaps, AWholeTraceHasNone) {
  const RunTrace trace = run_of({8, 4, 2}, {{.kind = Is::slow_rank, .rank = 21, .factor = 1.2}});
  EXPECT_FALSE(find_gaps(trace).any());
  EXPECT_EQ(gaps_text(find_gaps(trace)), "");
  const Diagnosis diagnosis = find_suspects(trace);
  EXPECT_TRUE(diagnosis.knows_slowdown);
  EXPECT_EQ(diagnosis.seen_share, 1);
  ASSERT_EQ(diagnosis.findings.size(), 1U);
  EXPECT_EQ(diagnosis.findings[0].doubt, "");
  EXPECT_THAT(suspects_text(diagnosis), StartsWith("a step takes"));
}

TEST(Gaps, RanksFilesAndPagesAreNamed) {
  RunTrace trace = without_rank(without_rank(run_of({2, 2, 2}), 0), 5);
  trace.unusable = {"t/rank-00000.mst is \x1b[2J empty"};
  EXPECT_EQ(gaps_text(find_gaps(trace)), "ranks 0, 5 of 8 have no trace; t/rank-00000.mst is ?[2J empty");
  trace.ranks[1].lost_pages = 3;
  EXPECT_THAT(gaps_text(find_gaps(trace)), HasSubstr("; 3 pages of events are cut off or damaged, of rank 2"));
  const nlohmann::json parsed = nlohmann::json::parse(gaps_json(find_gaps(trace)).dump());
  EXPECT_EQ(parsed["missing_first"], nlohmann::json({0, 5}));
  // Many of them, and traces of other programs, of which a part is usual.
  RunTrace few = run_of({8, 4, 2});
  few.ranks.resize(2);
  EXPECT_THAT(gaps_text(find_gaps(few)), StartsWith("ranks 2, 3, 4, 5, 6, 7, 8, 9 and 54 more of 64 have no trace"));
  few.source = &kKineto;
  EXPECT_FALSE(find_gaps(few).any());
}

TEST(Gaps, NobodyIsBlamedForARankWithoutATrace) {
  const RunTrace whole = run_of({2, 2, 2});
  for (int rank = 0; rank < 8; ++rank) {
    const Diagnosis diagnosis = find_suspects(without_rank(run_of({2, 2, 2}), rank));
    EXPECT_FALSE(names_somebody(diagnosis)) << suspects_text(diagnosis);
    EXPECT_THAT(suspects_text(diagnosis),
                StartsWith(fmt::format("not everything was traced: rank {} of 8 has no trace\n", rank)));
    EXPECT_LT(diagnosis.quiet_confidence, find_suspects(whole).quiet_confidence);
    if (diagnosis.findings.empty()) {
      EXPECT_THAT(suspects_text(diagnosis), HasSubstr("says nothing of what is missing"));
    }
    const nlohmann::json parsed = nlohmann::json::parse(suspects_json(diagnosis));
    EXPECT_EQ(parsed["slowdown"]["S"].is_null(), !diagnosis.knows_slowdown);
    EXPECT_EQ(parsed["gaps"]["missing_ranks"], 1);
    EXPECT_EQ(stragglers_text(diagnosis).find(": S ") == std::string::npos, !diagnosis.knows_slowdown);
  }
}

TEST(Gaps, AFaultIsInDoubtOnlyBesideThem) {
  const mesh::Mesh mesh{8, 4, 2};
  const mesh::Coord at = mesh.coord(21);
  const auto finding = [&](const mesh::Coord& missing) {
    const Diagnosis diagnosis = find_suspects(
        without_rank(run_of(mesh, {{.kind = Is::slow_rank, .rank = 21, .factor = 1.3}}), mesh.rank(missing)));
    for (const Finding& found : diagnosis.findings)
      if (found.code == FindingCode::slow_rank && found.ranks == std::vector{21}) return found;
    ADD_FAILURE() << "not found: " << suspects_text(diagnosis);
    return Finding();
  };
  EXPECT_EQ(finding({.dp = (at.dp + 1) % 8, .pp = (at.pp + 1) % 4, .tp = at.tp}).doubt, "");
  for (const mesh::Coord& beside : {mesh::Coord{.dp = (at.dp + 1) % 8, .pp = at.pp, .tp = at.tp},
                                    mesh::Coord{.dp = at.dp, .pp = (at.pp + 1) % 4, .tp = at.tp}}) {
    const Finding found = finding(beside);
    EXPECT_THAT(found.doubt, HasSubstr(fmt::format("rank {}, with which rank 21 exchanges", mesh.rank(beside))));
    EXPECT_LE(found.confidence, 0.5);
  }
}

TEST(Gaps, StepsWithLostPagesAreLeftOut) {
  const auto paused = [](int step) {
    return run_of({2, 2, 2}, {{.kind = Is::pause, .rank = 3, .from_step = step, .seconds = 0.2}});
  };
  for (const int step : {6, 8}) {
    RunTrace trace = paused(step);
    trace.ranks[1].lost_pages = 2;
    trace.ranks[1].lost = {{.first = 4, .last = 5}};
    const Diagnosis diagnosis = find_suspects(trace);
    EXPECT_THAT(diagnosis.steps, testing::Not(testing::Contains(testing::AnyOf(4, 5))));
    const auto left = std::ranges::find(diagnosis.left_out, 4, &StepLeftOut::step);
    ASSERT_NE(left, diagnosis.left_out.end());
    EXPECT_EQ(left->why, "pages of rank 1 with events of it are lost");
    EXPECT_LT(diagnosis.seen_share, 1);
    ASSERT_FALSE(diagnosis.findings.empty());
    EXPECT_EQ(diagnosis.findings[0].code, FindingCode::pause);
    EXPECT_EQ(diagnosis.findings[0].doubt.empty(), step == 8);
  }
}

// What a pause costs is a share of the whole run, of which most is lost here.
TEST(Gaps, CostsAreNotOfTheRestAlone) {
  RunTrace trace = run_of({2, 2, 2}, {{.kind = Is::pause, .rank = 3, .from_step = 6, .seconds = 0.05}});
  ASSERT_TRUE(names_somebody(find_suspects(trace)));
  trace.ranks[1].lost_pages = 10'000;
  trace.ranks[1].lost = {{.first = 10, .last = 10'000}};
  const Diagnosis diagnosis = find_suspects(trace);
  EXPECT_FALSE(names_somebody(diagnosis)) << suspects_text(diagnosis);
  EXPECT_LT(diagnosis.seen_share, 0.1);
}

TEST(Gaps, AreTheReasonThatNoStepIsWhole) {
  const auto message = [](const RunTrace& trace) {
    try {
      find_suspects(trace);
    } catch (const Error& error) { return std::string(error.message()); }
    return std::string("no error");
  };
  RunTrace lost = run_of({2, 2, 2});
  for (RankTrace& rank : lost.ranks) {
    rank.events.clear();
    rank.lost_pages = 5;
    rank.lost = {{.first = kNoStep, .last = 100}};
  }
  EXPECT_THAT(message(lost), testing::EndsWith("on all 2 stages: 40 pages of events are cut off or damaged, of ranks "
                                               "0, 1, 2, 3, 4, 5, 6, 7"));
  // Each step is whole on some ranks only.
  RunTrace torn = run_of({2, 2, 2});
  for (RankTrace& rank : torn.ranks) {
    rank.lost_pages = 1;
    rank.lost = {{.first = rank.rank < 4 ? kNoStep : 5, .last = rank.rank < 4 ? 5 : 100}};
  }
  EXPECT_THAT(message(torn), StartsWith("none of 10 steps is whole on all 8 ranks: 8 pages of events"));
}

// Files as a recorder writes them, of one rank of four.
class GapsOfFiles : public ::testing::Test {
 protected:
  static constexpr int kSteps = 8, kMessages = 300;  // a page holds less than a step

  GapsOfFiles() {
    trace::Recorder recorder(files_.path(),
                             {.rank = 1, .world = 4, .dp = 2, .pp = 2, .host = "n", .run = "", .device = "cpu"},
                             1 << 20, trace::Level::messages);
    const int group = recorder.group("dp[pp 0 tp 0]", 5, std::vector<int>{1, 3});
    std::int64_t now = 1000;
    std::uint64_t sequence = 0;
    for (int step = 0; step < kSteps; ++step) {
      recorder.begin_step(step, now += 1000);
      for (int i = 0; i < kMessages; ++i) {
        const trace::Ticket ticket = recorder.issue_comm(
            {.kind = Kind::all_gather, .group = group, .type = "bf16", .size_bytes = 4096, .sequence = sequence++});
        recorder.begin(ticket, now += 1000);
        recorder.end(ticket, now += 1000);
      }
      recorder.end_step(step, now += 1000, {});
    }
    recorder.close(trace::format::Ending::done, "");
    bytes_ = bytes_of(path());
  }

  std::string path() const { return files_ / trace::trace_file_name(1); }
  std::uint64_t pages_at() const {
    trace::format::Header header;
    std::memcpy(&header, bytes_.data(), sizeof header);
    return header.pages.offset;
  }
  RankTrace read(const std::string& bytes) {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
    return read_run({files_.path()}).ranks.at(0);
  }

  ForeignFiles files_;
  std::string bytes_;
};

TEST_F(GapsOfFiles, StepsOfLostPagesAreKnown) {
  constexpr std::uint64_t kPage = trace::format::kPageBytes;
  const RankTrace whole = read(bytes_);
  EXPECT_EQ(whole.lost_pages, 0U);
  EXPECT_TRUE(whole.lost.empty());
  std::string damaged = bytes_;
  for (const std::uint64_t page : {3, 4}) damaged[pages_at() + page * kPage + 100] ^= 1;
  const RankTrace holed = read(damaged);
  EXPECT_EQ(holed.lost_pages, 2U);
  ASSERT_EQ(holed.lost.size(), 1U);
  const auto has = [&](int step) {
    return std::ranges::count(holed.events, step, &Event::step) == std::ranges::count(whole.events, step, &Event::step);
  };
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_TRUE(has(step) || (step >= holed.lost[0].first && step <= holed.lost[0].last)) << step;
  }
  EXPECT_FALSE(has(holed.lost[0].first) && has(holed.lost[0].last));
  // Cut off from the fourth page on: nothing tells where the rest would have ended.
  const RankTrace cut = read(bytes_.substr(0, pages_at() + 3 * kPage));
  EXPECT_GT(cut.lost_pages, 0U);
  ASSERT_EQ(cut.lost.size(), 1U);
  EXPECT_EQ(cut.lost[0].first, cut.events.back().step);
  EXPECT_EQ(cut.lost[0].last, std::numeric_limits<std::int32_t>::max());
}

TEST_F(GapsOfFiles, FilesThatCannotBeReadAreNamed) {
  std::ofstream(files_ / "notes").close();
  std::ofstream(files_ / "rank-00000.mst").close();
  std::ofstream(files_ / "rank-00002.mst") << bytes_.substr(0, 100);
  const RunTrace trace = read_run({files_.path()});
  EXPECT_THAT(trace.unusable, ElementsAre(testing::EndsWith("rank-00000.mst: is empty"),
                                          HasSubstr("rank-00002.mst has no sound header")));
  EXPECT_THAT(gaps_text(find_gaps(trace)), StartsWith("ranks 0, 2, 3 of 4 have no trace; "));
}

}  // namespace
}  // namespace ms::tracepp
