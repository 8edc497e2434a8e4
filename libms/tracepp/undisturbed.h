// Who is slower than others like him where all share cores, so that most times say only who had to wait for one. What
// nothing disturbed is told by the shortest ones: a rank that is slow has none that are short. For suspects.cpp. Pure.
#pragma once

#include <vector>

#include "tracepp/outliers.h"
#include "tracepp/rank_table.h"

namespace ms::tracepp {

// As find_outliers, of RankTable::each; units are places in the mesh, and ranks of a stage do the same work. Steps are
// put together, and the shortest computations of a few stand for them. Who seems slow then must be so in his shortest
// of all that time, by far more than others differ in theirs, and must have so few others that short as is beyond
// chance: how often computations are disturbed, and how unequally, others tell. Fewer than four ranks tell nothing. One
// interval of a rank; the worst first.
std::vector<Outlier> find_undisturbed_outliers(const RankTable& table, double least_excess);
// Whether it can: there are ranks enough, and their computations are known one by one.
bool can_find_undisturbed(const RankTable& table);

// Of the median rank: the share of its computations that took much longer than its shortest with the same work.
double disturbed_share(const RankTable& table);

}  // namespace ms::tracepp
