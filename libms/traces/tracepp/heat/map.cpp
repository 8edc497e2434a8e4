#include "tracepp/heat/map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostNamedRanks = 3;
constexpr float kNamedShare = 0.5F / 9;  // of the full difference: what differs less looks like the median

std::string ranks_without_trace(const RunTrace& trace) {
  const std::int64_t world = trace.has_mesh ? trace.mesh.size() : trace.world;
  const auto traced = static_cast<std::int64_t>(trace.ranks.size());
  return world > traced ? fmt::format("{} of {} ranks left no trace", world - traced, world) : "";
}

// Names the ranks that spend most more than the median of their stage on what does not depend on others.
std::vector<std::string> slowest_ranks(const RunTrace& trace, const std::vector<Measure>& measures,
                                       double usual_step_s) {
  struct Row {
    const Measure* measure;
    std::size_t rank;
    float above;
  };
  if (std::ranges::none_of(measures, &Measure::is_own))
    return {"these traces do not say what a rank computes by itself: no rank is named"};
  std::vector<Row> rows;
  const float least = kNamedShare * full_difference(measures, usual_step_s);
  for (const Measure& measure : measures) {
    if (!measure.is_own) continue;
    for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
      const float above = measure.above(r);
      if (above > least) rows.push_back({.measure = &measure, .rank = r, .above = above});
    }
  }
  const std::size_t named = std::min(kMostNamedRanks, rows.size());
  std::ranges::partial_sort(rows, rows.begin() + static_cast<std::ptrdiff_t>(named), std::ranges::greater(),
                            &Row::above);
  if (rows.empty()) {
    return {fmt::format("no rank spends {} of a step more than the median of its stage on its own work",
                        format_duration(least))};
  }
  std::vector<std::string> lines{
      "most above the median of their stage in their own work; who is at fault, ms-tracepp "
      "stragglers says:"};
  for (const Row& row : std::span(rows).first(named)) {
    lines.push_back(fmt::format("  {}: {} {}, {} ({:.1f} % of a step)", rank_text(trace, row.rank), row.measure->name,
                                format_duration(row.measure->values[row.rank]), difference_text(row.above),
                                100 * row.above / usual_step_s));
  }
  if (rows.size() > named)
    lines.push_back(fmt::format("  and {} more, by {} and more", rows.size() - named, format_duration(least)));
  return lines;
}

// How many traced stages there are, and how many of them have one traced rank only.
struct StagesTraced {
  std::size_t all = 0, alone = 0;
};
StagesTraced stages_traced(const RunTrace& trace) {
  const mesh::Mesh mesh = mesh_of(trace);
  std::map<int, std::size_t> counts;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) ++counts[stage_of(trace, mesh, r)];
  StagesTraced stages{.all = counts.size()};
  for (const auto& [stage, ranks] : counts) stages.alone += ranks == 1 ? 1 : 0;
  return stages;
}

// The ranges of `count` things in at most `most` cells, as evenly as they go.
std::vector<std::size_t> cuts_of(std::size_t count, std::size_t most) {
  const std::size_t a_cell = (count + most - 1) / std::max<std::size_t>(most, 1);
  std::vector<std::size_t> cuts;
  for (std::size_t at = 0; at < count; at += std::max<std::size_t>(a_cell, 1)) cuts.push_back(at);
  cuts.push_back(count);
  return cuts;
}

// The rows with the largest differences, in their order.
std::vector<std::size_t> rows_that_differ(const HeatMap& map, std::size_t most) {
  const std::size_t count = map.grids.front().rows.size();
  std::vector<float> largest(count);
  for (const HeatGrid& grid : map.grids) {
    for (std::size_t row = 0; row < count; ++row) {
      for (std::size_t column = 0; column < grid.columns.size(); ++column)
        largest[row] = std::max(largest[row], std::abs(grid.part(row, column)));
    }
  }
  std::vector<std::size_t> rows(count);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  std::ranges::stable_sort(rows, std::ranges::greater(), [&](std::size_t row) { return largest[row]; });
  rows.resize(std::min(most, count));
  std::ranges::sort(rows);
  return rows;
}

}  // namespace

float HeatGrid::part(std::size_t row, std::size_t column) const {
  return std::clamp((at(row, column) - middle) / full, -1.0F, 1.0F);
}

std::string difference_text(double difference_s) {
  return (difference_s < 0 ? "-" : "+") + format_duration(std::abs(difference_s));
}

HeatMap rank_map(const RunTrace& trace, const std::vector<Measure>& measures, double usual_step_s) {
  HeatMap map{.title = fmt::format("Ranks by kind of work: more or less of a step ({}) than the median rank of the "
                                   "same stage",
                                   format_duration(usual_step_s)),
              .column_name = "rank",
              .notes = slowest_ranks(trace, measures, usual_step_s)};
  HeatGrid& grid = map.grids.emplace_back();
  grid.full = full_difference(measures, usual_step_s);
  for (const RankTrace& rank : trace.ranks) grid.columns.push_back(rank.rank);
  for (const Measure& measure : measures) {
    grid.rows.push_back(measure.name);
    for (std::size_t r = 0; r < trace.ranks.size(); ++r) grid.values.push_back(measure.above(r));
  }
  const StagesTraced stages = stages_traced(trace);
  if (stages.alone == stages.all) {
    map.notes = {stages.all == 1 ? "one rank was traced: nothing to compare it with"
                                 : "each stage has one traced rank: nothing to compare it with; --by mesh compares "
                                   "stages"};
  } else if (stages.alone > 0) {
    map.notes.push_back(fmt::format("{} of {} with one traced rank: nothing to compare it with there", stages.alone,
                                    plural(stages.all, "stage")));
  }
  if (std::string absent = ranks_without_trace(trace); !absent.empty()) map.notes.push_back(std::move(absent));
  return map;
}

HeatMap mesh_map(const RunTrace& trace, const std::vector<Measure>& measures) {
  const mesh::Mesh mesh = mesh_of(trace);
  if (!trace.has_mesh || mesh.dp * mesh.pp == 1) {
    throw user_error("trace.shape",
                     trace.has_mesh ? "the mesh is one cell: dp 1, pp 1"
                                    : "the trace does not say how ranks lie on the axes dp, pp and tp",
                     "leave --by out: ranks by kind of work");
  }
  HeatMap map{.title = "Stages and replicas: seconds of a step, the slowest tp rank of each dp and pp",
              .column_name = "dp",
              .column_thing = "dp rank",
              .may_join_rows = true,
              .notes = {"furthest above the median cell; where others wait, the slow one is below it:"}};
  for (MeshMap& of : mesh_maps(trace, measures)) {
    HeatGrid& grid = map.grids.emplace_back();
    grid.title = of.role;
    for (int pp = 0; pp < mesh.pp; ++pp) grid.rows.push_back(fmt::format("pp {}", pp));
    for (int dp = 0; dp < mesh.dp; ++dp) grid.columns.push_back(dp);
    grid.middle = of.middle;
    grid.full = of.full;
    const auto above = [&](float value) { return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value; };
    const auto worst = std::ranges::max_element(of.cells, {}, above) - of.cells.begin();
    const auto cell = static_cast<std::size_t>(worst);
    map.notes.push_back(fmt::format("  {}: {} {}, {}", of.role,
                                    rank_text(trace, static_cast<std::size_t>(of.slowest[cell])),
                                    format_duration(of.cells[cell]), difference_text(of.cells[cell] - of.middle)));
    grid.values = std::move(of.cells);
  }
  if (map.grids.empty())
    throw user_error("trace.shape",
                     "no forward, no backward and no waiting in the steps of these "
                     "traces, or a mesh beyond a million cells");
  if (std::string absent = ranks_without_trace(trace); !absent.empty()) map.notes.push_back(std::move(absent));
  return map;
}

HeatMap expert_map(const trace::ExpertLoads& loads) {
  constexpr float kMost = 2, kLeastLoad = 1e-3F;  // full at a quarter and at four times an even share
  HeatMap map{.title = fmt::format("Experts by layer: tokens in step {}, against an even share", loads.step),
              .column_name = "expert",
              .column_thing = "expert",
              .row_thing = "layer",
              .middle = "an even share",
              .full = "4 times an even share, i is a quarter",
              .may_join_rows = true};
  HeatGrid& grid = map.grids.emplace_back();
  grid.full = kMost;
  for (std::size_t expert = 0; expert < loads.experts(); ++expert) grid.columns.push_back(static_cast<int>(expert));
  for (std::size_t layer = 0; layer < loads.layers(); ++layer) {
    grid.rows.push_back(fmt::format("layer {}", layer));
    if (loads.by_layer[layer].empty())
      grid.values.resize(grid.values.size() + loads.experts(), std::numeric_limits<float>::quiet_NaN());
    for (const double load : loads.by_layer[layer])
      grid.values.push_back(std::log2(std::max(kLeastLoad, static_cast<float>(load))));
  }
  const std::string warning = trace::starving_experts(loads.by_layer);
  map.notes.push_back(warning.empty() ? "every expert had at least a tenth of an even share" : warning);
  if (loads.dropped > 0) map.notes.push_back(fmt::format("{:.1f} % of the rows were dropped", 100 * loads.dropped));
  return map;
}

HeatLevel level_of(const HeatMap& map, std::size_t most_rows, std::size_t most_columns) {
  HeatLevel level{.map = map};
  level.map.grids.clear();
  if (map.grids.empty()) return level;
  const std::size_t rows = map.grids.front().rows.size(), columns = map.grids.front().columns.size();
  const std::vector<std::size_t> column_cuts = cuts_of(columns, most_columns);
  std::vector<std::size_t> row_begins, row_ends;
  if (map.may_join_rows) {
    const std::vector<std::size_t> cuts = cuts_of(rows, most_rows);
    row_begins.assign(cuts.begin(), cuts.end() - 1);
    row_ends.assign(cuts.begin() + 1, cuts.end());
  } else {
    row_begins = rows_that_differ(map, most_rows);
    for (const std::size_t row : row_begins) row_ends.push_back(row + 1);
    level.rows_left_out = rows - row_begins.size();
  }
  for (std::size_t i = 0; i < row_begins.size(); ++i)
    level.rows_a_cell = std::max(level.rows_a_cell, row_ends[i] - row_begins[i]);
  for (std::size_t c = 0; c + 1 < column_cuts.size(); ++c)
    level.columns_a_cell = std::max(level.columns_a_cell, column_cuts[c + 1] - column_cuts[c]);
  for (const HeatGrid& from : map.grids) {
    HeatGrid& to = level.map.grids.emplace_back();
    to.title = from.title;
    to.middle = from.middle;
    to.full = from.full;
    for (std::size_t c = 0; c + 1 < column_cuts.size(); ++c) to.columns.push_back(from.columns[column_cuts[c]]);
    for (std::size_t i = 0; i < row_begins.size(); ++i) {
      to.rows.push_back(from.rows[row_begins[i]]);
      for (std::size_t c = 0; c + 1 < column_cuts.size(); ++c) {
        float worst = std::numeric_limits<float>::quiet_NaN();
        for (std::size_t row = row_begins[i]; row < row_ends[i]; ++row) {
          for (std::size_t column = column_cuts[c]; column < column_cuts[c + 1]; ++column) {
            const float value = from.at(row, column);
            if (std::isnan(worst) || std::abs(value - from.middle) > std::abs(worst - from.middle)) worst = value;
          }
        }
        to.values.push_back(worst);
      }
    }
  }
  return level;
}

std::vector<std::string> notes_of(const HeatLevel& level) {
  std::vector<std::string> notes;
  const bool joins_columns = level.columns_a_cell > 1, joins_rows = level.rows_a_cell > 1;
  if (joins_columns || joins_rows) {
    std::string held = joins_columns ? plural(level.columns_a_cell, level.map.column_thing) : "";
    if (joins_rows) held += (joins_columns ? " by " : "") + plural(level.rows_a_cell, level.map.row_thing);
    notes.push_back(fmt::format("a cell holds up to {}, and shows the one furthest from {}", held, level.map.middle));
  }
  if (level.rows_left_out > 0)
    notes.push_back(
        fmt::format("not shown, for they differ less: {} of work; a higher window or --output FILE.png has "
                    "all",
                    plural(level.rows_left_out, "kind")));
  notes.insert(notes.end(), level.map.notes.begin(), level.map.notes.end());
  return notes;
}

}  // namespace ms::tracepp
