// Finds slow ranks where ranks share cores, so that most times only show which rank had to wait for one. The shortest
// times are undisturbed: a slow rank has no short ones. For suspects.cpp. Pure.
#pragma once

#include <vector>

#include "tracepp/findings/outliers.h"
#include "tracepp/steps/rank_table.h"

namespace ms::tracepp {

// Like find_outliers for RankTable::each; units are places in the mesh, and the ranks of a stage do the same work.
// Steps are pooled, and the shortest computations of a few steps represent them. A slow rank must be slow in its
// shortest computations of the whole time, by far more than other ranks differ in theirs, and must have fewer short
// ones than chance allows: the other ranks show how often, and how unequally, computations are disturbed. Needs at
// least four ranks. One interval per rank; the worst first.
std::vector<Outlier> find_undisturbed_outliers(const RankTable& table, double least_excess);
// Returns whether there are enough ranks, and their computations are known one by one.
bool can_find_undisturbed(const RankTable& table);

// Returns the seconds that each stage's ranks compute in a step, by the shortest computations of the whole run: the
// median of its ranks; NaN where they are not known.
std::vector<double> undisturbed_stages(const RankTable& table);

// Returns the median rank's share of computations that took much longer than its shortest with the same work.
double disturbed_share(const RankTable& table);

}  // namespace ms::tracepp
