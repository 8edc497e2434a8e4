// The seconds of a step that each rank spends on each kind of work: what all heat maps show, those of the page, of a
// terminal and of a PNG. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/mesh.h"
#include "tracepp/run_trace.h"
#include "tracepp/steps/breakdown.h"

namespace ms::tracepp {

// The parts of a step, mean over ranks and steps; together they are its length.
struct StepShare {
  std::string_view name;
  double s = 0, share = 0;
};
std::vector<StepShare> shares_of(const Breakdown& breakdown);

// Returns the run's mesh; where it is not known, all ranks in a row along dp.
mesh::Mesh mesh_of(const RunTrace& trace);

struct Measure {
  std::string name;                 // printable ASCII: "computing", "all_gather params"
  std::string_view role = {};       // "forward", "backward", "waiting": of the maps of the mesh; else empty
  bool is_part = false;             // of the parts of a step, which do not overlap; else a kind of work, which may
  bool is_own = false;              // a part that does not depend on other ranks
  std::vector<float> values = {};   // [rank's index]: seconds of a step, mean
  std::vector<float> medians = {};  // [rank's index]: of the traced ranks of its stage

  float above(std::size_t rank) const { return values[rank] - medians[rank]; }
};
// Returns the parts of a step, then the kinds of work; without those that are 0 on all ranks.
std::vector<Measure> measures_of(const RunTrace& trace, const Breakdown& breakdown);

// Returns the stage of the rank with this index, within the mesh of mesh_of().
int stage_of(const RunTrace& trace, const mesh::Mesh& mesh, std::size_t rank);

// Returns the difference that has the full colour: the largest of all, at least a fiftieth of a step.
float full_difference(const std::vector<Measure>& measures, double usual_step_s);

// Seconds of a step by cell of the mesh, dp by pp: its slowest tp rank.
struct MeshMap {
  std::string_view role;
  std::vector<float> cells;             // [pp][dp]; NaN: no trace
  std::vector<int> slowest;             // [pp][dp]: index of that rank; -1: no trace
  float low = 0, middle = 0, high = 0;  // of the cells; middle: their median
  float full = 0;                       // the difference from the middle that has the full colour
};
// Returns those of forward, backward and waiting that the trace has; none of a mesh above 2^20 cells.
std::vector<MeshMap> mesh_maps(const RunTrace& trace, const std::vector<Measure>& measures);

}  // namespace ms::tracepp
