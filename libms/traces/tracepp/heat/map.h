// A heat map as rows and columns of numbers, before it is drawn. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trace/expert_loads.h"
#include "tracepp/heat/measures.h"

namespace ms::tracepp {

// All texts are printable ASCII: names from the trace are made so.
struct HeatGrid {
  std::string title = {};              // may be empty
  std::vector<std::string> rows = {};  // their names
  std::vector<int> columns = {};       // their numbers: ranks, or dp ranks
  std::vector<float> values = {};      // [row][column]: seconds of a step; NaN: no trace
  float middle = 0, full = 1;          // a value has its full colour at middle + full and at middle - full

  float at(std::size_t row, std::size_t column) const { return values[row * columns.size() + column]; }
  // The part of its full colour that a value has, from -1 (less) to 1 (more); NaN: no trace.
  float part(std::size_t row, std::size_t column) const;
};

struct HeatMap {
  std::string title = {};
  std::string column_name = {};  // "rank", "dp", "expert"
  std::string column_thing = "rank", row_thing = "stage";
  std::string middle = "the median", full = {};  // what cells without and with the full colour have; empty: the seconds
  std::vector<HeatGrid> grids = {};              // beside each other, with the same rows and columns
  bool may_join_rows = false;                    // rows are numbers in order; else each is a thing of its own
  std::vector<std::string> notes = {};  // beneath: the cells that are most above the middle, and what is not known
};

// Rows are measures, columns are ranks; values are differences from the median rank of the same stage.
HeatMap rank_map(const RunTrace& trace, const std::vector<Measure>& measures, double usual_step_s);
// Three grids of stages by replicas. Throws Error("trace.shape", user) if the mesh is not known, or has one cell only.
HeatMap mesh_map(const RunTrace& trace, const std::vector<Measure>& measures);

// Rows are layers, columns are experts; values are powers of two of an even share of the tokens.
HeatMap expert_map(const trace::ExpertLoads& loads);

// A level of detail: at most so many rows and columns. Where a cell holds several, it is the one that is furthest from
// the middle: a mean would hide a slow rank. Rows that may not be joined are left out instead, those that differ least
// first, and counted.
struct HeatLevel {
  HeatMap map = {};
  std::size_t rows_a_cell = 1, columns_a_cell = 1;  // at most
  std::size_t rows_left_out = 0;
};
HeatLevel level_of(const HeatMap& map, std::size_t most_rows, std::size_t most_columns);

// Returns the lines beneath a drawn map: how many ranks a cell holds, what was left out, and the map's notes.
std::vector<std::string> notes_of(const HeatLevel& level);

// "+610ms", "-1.23s".
std::string difference_text(double difference_s);

}  // namespace ms::tracepp
