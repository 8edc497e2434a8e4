// Where the level of a series of numbers changes, and which single values stand out; for step times. By ranks of the
// values, not by their size: nothing is assumed of their distribution, and single wild values move nothing. Pure,
// deterministic.
//
// Intervals of the series, of many lengths (the seeded intervals of Kovacs et al., arXiv 2002.06633), are split where
// the Wilcoxon rank sum of the left part is most unlikely; the shortest ones in which that is beyond chance tell the
// changes. Beyond chance means: in a series of independent values without change some interval passes with a
// probability of at most kFalseAlarms (Bonferroni's bound over all splits of all intervals).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ms::tracepp {

inline constexpr double kFalseAlarms = 1e-3;  // of a series
// Smaller changes of the level are not told, however sure they are.
inline constexpr double kLeastShift = 0.01;
// About the shortest series and the shortest level in which anything can be beyond chance.
inline constexpr std::size_t kShortestSeries = 20;

struct Level {
  std::size_t begin = 0, end = 0;  // of the series
  double median = 0, sigma = 0;    // robust.h
};

// The series cut into levels, in order; one where nothing changes, none of an empty series. `false_alarms` is for those
// who ask about many series.
std::vector<Level> find_levels(std::span<const double> values, double false_alarms = kFalseAlarms);

// Of a single split of the whole series: how unlikely the most unlikely one is, as -ln of its probability. A cheap
// question before find_levels.
double most_unlikely_split(std::span<const double> values);
// The value beyond which that is in some of `tests` tests with probability `false_alarms`.
double surprise_limit(double false_alarms, double tests);

// Values above their level by more than a tenth of it and ten sigma.
std::vector<std::size_t> find_pauses(std::span<const double> values, std::span<const Level> levels);

}  // namespace ms::tracepp
