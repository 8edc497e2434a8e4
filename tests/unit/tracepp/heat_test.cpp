// Heat maps: the numbers, levels of detail, text of a size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "tracepp/heat/draw.h"
#include "tracepp/heat/measures.h"
#include "tracepp/steps/effective.h"
#include "tracepp/synthetic.h"

namespace ms::tracepp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RunTrace run_with_slow_rank(mesh::Mesh mesh, int rank) {
  SyntheticRun run{.mesh = mesh, .steps = 4};
  run.faults = {{.kind = Fault::Kind::slow_rank, .rank = rank, .factor = 1.5}};
  return make_run(run);
}

HeatMap ranks_of(const RunTrace& trace) {
  const Breakdown breakdown = break_down(trace);
  return rank_map(trace, measures_of(trace, breakdown), measure_effective(trace, breakdown).median_step_s);
}
HeatMap mesh_of_run(const RunTrace& trace) { return mesh_map(trace, measures_of(trace, break_down(trace))); }

// A map of one row, of ranks that are all the same but one.
HeatMap one_that_differs(std::size_t ranks, std::size_t which) {
  HeatMap map{.title = "A map", .column_name = "rank"};
  HeatGrid& grid = map.grids.emplace_back();
  grid.rows = {"computing"};
  for (std::size_t r = 0; r < ranks; ++r) grid.columns.push_back(static_cast<int>(r));
  grid.values.assign(ranks, 0);
  grid.values[which] = 1;
  return map;
}

std::string plain(const HeatMap& map, const Screen& screen) {
  return painted_text(terminal_map(map, screen), ColourDepth::none);
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) all.push_back(line);
  return all;
}

TEST(HeatMap, NamesTheRankThatComputesLonger) {
  const HeatMap map = ranks_of(run_with_slow_rank({.dp = 4, .pp = 2, .tp = 1}, 6));
  const HeatGrid& grid = map.grids.front();
  ASSERT_EQ(grid.rows.front(), "computing");
  for (std::size_t rank = 0; rank < 8; ++rank) {
    EXPECT_TRUE(rank == 6 || grid.at(0, rank) < grid.at(0, 6) / 2) << rank;
  }
  ASSERT_GE(map.notes.size(), 2U);
  EXPECT_THAT(map.notes[1], HasSubstr("rank 6 (dp 2 pp 1 tp 0"));
}

TEST(HeatMap, OfTwoRanksTheSlowerIsAboveTheirMedian) {
  const RunTrace trace = run_with_slow_rank({.dp = 2, .pp = 1, .tp = 1}, 1);
  const std::vector<Measure> measures = measures_of(trace, break_down(trace));
  EXPECT_GT(measures.front().above(1), 0);
  EXPECT_FLOAT_EQ(measures.front().above(1), -measures.front().above(0));
}

TEST(HeatMap, SaysWhereThereIsNothingToCompareWith) {
  const HeatMap map = ranks_of(run_with_slow_rank({.dp = 1, .pp = 2, .tp = 1}, 1));
  EXPECT_THAT(map.notes, ElementsAre(HasSubstr("nothing to compare it with")));
  RunTrace partly = run_with_slow_rank({.dp = 2, .pp = 2, .tp = 1}, 1);
  partly.ranks.pop_back();
  EXPECT_THAT(ranks_of(partly).notes, testing::Contains("1 of 2 stages with one traced rank: nothing to compare it "
                                                        "with there"));
  EXPECT_THAT(ranks_of(partly).notes, testing::Contains("1 of 4 ranks left no trace"));
}

TEST(HeatMap, NamesNobodyByTheWaitingOfOthers) {
  const RunTrace trace = run_with_slow_rank({.dp = 4, .pp = 1, .tp = 1}, 1);
  std::vector<Measure> measures = measures_of(trace, break_down(trace));
  std::erase_if(measures, [](const Measure& measure) { return measure.is_own; });
  EXPECT_THAT(rank_map(trace, measures, 1).notes, ElementsAre(HasSubstr("no rank is named")));
}

TEST(HeatMap, OfTheMeshHasItsSlowestCell) {
  const RunTrace trace = run_with_slow_rank({.dp = 4, .pp = 2, .tp = 2}, 13);
  const HeatMap map = mesh_of_run(trace);
  ASSERT_EQ(map.grids.size(), 3U);
  EXPECT_EQ(map.grids[0].title, "forward");
  const auto& cells = map.grids[0].values;
  EXPECT_EQ(std::ranges::max_element(cells) - cells.begin(), 4 + 2) << "rank 13 is dp 2, pp 1, tp 1";
  EXPECT_THAT(map.notes[1], HasSubstr("(dp 2 pp 1 tp "));
}

TEST(HeatMap, OfTheMeshNeedsOne) {
  RunTrace trace = run_with_slow_rank({.dp = 2, .pp = 1, .tp = 1}, 1);
  trace.has_mesh = false;
  EXPECT_THROW(mesh_of_run(trace), Error);
  EXPECT_NO_THROW(ranks_of(trace));
}

TEST(HeatLevel, ShowsTheWorstOfACellAndSaysHowManyItHolds) {
  const HeatMap map = one_that_differs(10'000, 7'777);
  const HeatLevel level = level_of(map, 1, 100);
  ASSERT_EQ(level.map.grids.front().columns.size(), 100U);
  EXPECT_EQ(level.columns_a_cell, 100U);
  EXPECT_EQ(level.map.grids.front().values[77], 1);
  EXPECT_EQ(std::ranges::count(level.map.grids.front().values, 1.0F), 1);
  EXPECT_THAT(notes_of(level).front(), HasSubstr("a cell holds up to 100 ranks"));
  EXPECT_TRUE(notes_of(level_of(map, 1, 10'000)).empty());
}

TEST(HeatLevel, LeavesOutRowsThatDifferLess) {
  HeatMap map = one_that_differs(2, 0);
  HeatGrid& grid = map.grids.front();
  grid.rows = {"a", "b", "c"};
  grid.values = {0.1F, 0, -0.5F, 0, 0.3F, 0};
  const HeatLevel level = level_of(map, 2, 2);
  EXPECT_THAT(level.map.grids.front().rows, ElementsAre("b", "c"));
  EXPECT_THAT(notes_of(level).front(), HasSubstr("1 kind of work"));
  map.may_join_rows = true;
  const HeatLevel joined = level_of(map, 2, 2);
  EXPECT_THAT(joined.map.grids.front().rows, ElementsAre("a", "c"));
  EXPECT_EQ(joined.map.grids.front().at(0, 0), -0.5F);
}

TEST(HeatMap, OfExpertsIsAgainstAnEvenShare) {
  const HeatMap map = expert_map({.step = 7, .dropped = 0.25, .by_layer = {{1, 2, 0.5, 0.5}, {4, 0, 0, 0}}});
  const HeatGrid& grid = map.grids.front();
  EXPECT_THAT(grid.rows, ElementsAre("layer 0", "layer 1"));
  EXPECT_THAT(grid.columns, ElementsAre(0, 1, 2, 3));
  for (std::size_t expert = 0; expert < 4; ++expert) {
    EXPECT_EQ(grid.part(0, expert), (std::array{0.0F, 0.5F, -0.5F, -0.5F})[expert]) << expert;
    EXPECT_EQ(grid.part(1, expert), expert == 0 ? 1 : -1) << expert;
  }
  EXPECT_THAT(map.notes, ElementsAre(HasSubstr("3 of 8 experts"), HasSubstr("25.0 % of the rows were dropped")));
  const std::vector<std::string> notes = notes_of(level_of(map, 1, 2));
  EXPECT_THAT(notes.front(), HasSubstr("2 experts by 2 layers, and shows the one furthest from an even share"));
  EXPECT_THAT(plain(map, {}), HasSubstr("9 is 4 times an even share"));
  EXPECT_THAT(expert_map({.by_layer = {{1, 1}}}).notes, ElementsAre(HasSubstr("every expert")));
}

TEST(HeatTerminal, IsReadWithoutColours) {
  HeatMap map = one_that_differs(4, 2);
  map.grids.front().values[0] = -1;
  map.grids.front().values[3] = NAN;
  const std::string text = plain(map, {});
  EXPECT_THAT(text, HasSubstr("computing  i  .  9    "));
  EXPECT_THAT(painted_text(terminal_map(map, {}), ColourDepth::full), HasSubstr("48;2;214;40;40m"));
}

TEST(HeatTerminal, NumbersStandAboveTheSignsOfTheirColumns) {
  for (const std::size_t ranks : {2U, 8U, 10U}) {
    const std::size_t which = ranks - 1;
    const std::vector<std::string> all = lines(plain(one_that_differs(ranks, which), {.columns = 80}));
    const auto row = std::ranges::find_if(all, [](const std::string& line) { return line.starts_with("computing"); });
    ASSERT_TRUE(row != all.begin() && row != all.end());
    EXPECT_EQ((row - 1)->find(std::to_string(which)), row->find('9')) << *(row - 1) << "\n" << *row;
  }
}

TEST(HeatTerminal, FitsTheScreen) {
  const RunTrace trace = run_with_slow_rank({.dp = 8, .pp = 4, .tp = 2}, 13);
  std::vector<HeatMap> maps{ranks_of(trace), mesh_of_run(trace), one_that_differs(10'000, 5)};
  maps.push_back(maps[1]);
  for (HeatGrid& grid : maps.back().grids) {  // a mesh of 40 stages
    for (int stage = 4; stage < 40; ++stage) {
      grid.rows.push_back("pp " + std::to_string(stage));
      grid.values.insert(grid.values.end(), 8, grid.middle);
    }
  }
  struct Size {
    std::size_t columns, lines;
  };
  for (const Size size : {Size{80, 24}, {200, 60}, {50, 26}, {132, 20}, {20, 100}, {33, 60}}) {
    for (const HeatMap& map : maps) {
      const std::string text = plain(map, {.columns = size.columns, .lines = size.lines});
      EXPECT_LE(lines(text).size(), size.lines - 1) << size.columns << " by " << size.lines << "\n" << text;
      for (const std::string& line : lines(text)) EXPECT_LE(line.size(), size.columns) << line;
    }
  }
  EXPECT_FALSE(plain(maps[0], {.columns = 1, .lines = 1}).empty());
}

TEST(HeatTerminal, NamesCannotSteerIt) {
  RunTrace trace = run_with_slow_rank({.dp = 4, .pp = 1, .tp = 1}, 2);
  trace.ranks[2].host = "\x1b[2J\xe2\x80\xae\"'" + std::string(1 << 20, 'x');
  const std::string text = plain(ranks_of(trace), {.columns = 200});
  EXPECT_THAT(text, HasSubstr("rank 2 (dp 2 pp 0 tp 0, ?[2J?"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_LT(text.size(), 8U << 10);
}

}  // namespace
}  // namespace ms::tracepp
