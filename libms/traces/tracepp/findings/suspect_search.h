// The searches of suspects.cpp, one for each kind of cause; suspect_compute.cpp, suspect_delays.cpp and
// suspect_links.cpp implement them. Pure.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tracepp/findings/outliers.h"
#include "tracepp/findings/suspects.h"
#include "tracepp/steps/step_builder.h"

namespace ms::tracepp {

// The input of all searches.
struct Evidence {
  const RankTable& table;
  const WhatIf& what_if;

  const StepTrace& steps() const { return what_if.trace(); }
  const mesh::Mesh& mesh() const { return table.mesh; }
  std::int64_t step(std::size_t index) const { return steps().steps[index]; }
  int rank(int place) const { return table.ranks[static_cast<std::size_t>(place)]; }
  // Returns the lane of a dp rank of the run; -1: left out.
  int lane(int dp) const {
    for (int i = 0; i < steps().dp; ++i)
      if (steps().dp_rank(i) == dp) return i;
    return -1;
  }
  double step_s() const;       // how long a step lasts, median,
  double mean_step_s() const;  // and mean, with all delays; above 0
  Finding finding(FindingCode code, std::size_t first, std::size_t last, double cost_s, double confidence) const;
  std::string since(const Finding& found) const;  // ", since about step 7", ", in steps 7 to 9", ""
};

// Returns the confidence: one half if the threshold was just reached.
inline double confidence_of(const Outlier& outlier) { return 1 - 0.5 * outlier.threshold / outlier.excess; }

// How ranks were compared: by RankTable::pace among a stage, or among the ranks of one host in it; by the shortest of
// RankTable::each if ranks share cores.
enum class Compared { all, on_host, undisturbed };
// `outliers`: by place in the mesh.
std::vector<Finding> find_slow_ranks(const Evidence& evidence, const std::vector<Outlier>& outliers, Compared compared);
// Returns at most one finding: all stages that have more to compute than others, since mending one of two gains
// nothing.
std::vector<Finding> find_slow_stages(const Evidence& evidence, Compared compared);
std::vector<Finding> find_uneven_sequences(const Evidence& evidence);
std::vector<Finding> find_slow_links(const Evidence& evidence);
// `is_slow`: by place in the mesh, ranks whose long computations have been explained.
std::vector<Finding> find_delays(const Evidence& evidence, const std::vector<bool>& is_slow);

}  // namespace ms::tracepp
