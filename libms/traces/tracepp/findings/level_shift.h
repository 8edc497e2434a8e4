// Finds where the level of a series of numbers changes, and which single values stand out; for step times. Uses the
// ranks of the values, not their size: it assumes no distribution, and single extreme values have no influence. Pure,
// deterministic.
//
// Intervals of the series, of many lengths (the seeded intervals of Kovacs et al., arXiv 2002.06633), are split where
// the Wilcoxon rank sum of the left part is most unlikely; the shortest intervals in which that is significant give the
// changes. Significant means: in a series of independent values without a change some interval passes with a
// probability of at most kFalseAlarms (Bonferroni's bound over all splits of all intervals).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ms::tracepp {

inline constexpr double kFalseAlarms = 1e-3;  // of a series
// Smaller changes of the level are not reported, however significant they are.
inline constexpr double kLeastShift = 0.01;
// Roughly the shortest series and the shortest level in which anything can be significant.
inline constexpr std::size_t kShortestSeries = 20;

struct Level {
  std::size_t begin = 0, end = 0;  // of the series
  double median = 0, sigma = 0;    // robust.h
};

// Splits the series into levels, in order; one if nothing changes, none of an empty series. `false_alarms` is for
// callers that test many series.
std::vector<Level> find_levels(std::span<const double> values, double false_alarms = kFalseAlarms);

// Returns how unlikely the most unlikely single split of the whole series is, as -ln of its probability: a cheap test
// before find_levels.
double most_unlikely_split(std::span<const double> values);
// Returns the value that this exceeds in any of `tests` tests with probability `false_alarms`.
double surprise_limit(double false_alarms, double tests);

// Returns the values above their level by more than a tenth of it and ten sigma.
std::vector<std::size_t> find_pauses(std::span<const double> values, std::span<const Level> levels);

}  // namespace ms::tracepp
