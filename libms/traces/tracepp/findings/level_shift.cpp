#include "tracepp/findings/level_shift.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kShortestInterval = 16;  // in shorter ones nothing is beyond chance
constexpr double kLeastSigmas = 0.5;           // of a level, that a shift is larger than
constexpr double kPausePart = 0.1, kPauseSigmas = 10;

struct Window {
  std::size_t begin = 0, end = 0;
  std::size_t length() const { return end - begin; }
};

struct Split {
  Window interval;
  std::size_t at = 0;   // first of the right part
  double surprise = 0;  // -ln of the probability that a rank sum is so far off, to either side
};

// The whole series, and from then on layers of shorter intervals that overlap by half.
std::vector<Window> seeded_intervals(std::size_t count) {
  std::vector<Window> intervals;
  double length = static_cast<double>(count);
  while (length >= static_cast<double>(kShortestInterval)) {
    const auto number = static_cast<std::size_t>(2 * std::ceil(static_cast<double>(count) / length - 1e-9)) - 1;
    const auto whole = static_cast<std::size_t>(std::ceil(length));
    for (std::size_t i = 0; i < number; ++i) {
      const std::size_t begin = number == 1 ? 0 : i * (count - whole) / (number - 1);
      intervals.push_back({begin, begin + whole});
    }
    length /= std::numbers::sqrt2;
  }
  return intervals;
}

// -ln of the probability of a normal value beyond z standard deviations, to either side.
double surprise_of_normal(double z) {
  if (z < 30) return -std::log(std::erfc(z / std::numbers::sqrt2));
  return z * z / 2 + std::log(z * std::sqrt(std::numbers::pi / 2));
}

// At least -ln of the probability that the rank sum of a part is within `missing` of its extreme: such arrangements
// are the partitions of the numbers up to `missing`, and p(k) < exp(pi sqrt(2k / 3)) / k^(3/4). Far off the normal
// approximation finds them much too likely.
double surprise_near_extreme(double missing, double log_arrangements) {
  const double log_partitions =
      std::numbers::pi * std::sqrt(2 * missing / 3) - 0.75 * std::log(std::max(missing, 1.0)) + std::log1p(missing);
  return log_arrangements - log_partitions - std::numbers::ln2;
}

Split best_split(std::span<const double> values, const Window& interval, std::vector<std::size_t>& order,
                 std::vector<double>& ranks) {
  const std::size_t n = interval.length();
  order.resize(n);
  ranks.resize(n);
  std::iota(order.begin(), order.end(), interval.begin);
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  for (std::size_t i = 0, end = 0; i < n; i = end) {  // equal values share their mean rank
    while (end < n && values[order[end]] == values[order[i]]) ++end;
    for (std::size_t k = i; k < end; ++k) ranks[order[k] - interval.begin] = static_cast<double>(i + end + 1) / 2;
  }
  const auto count = static_cast<double>(n);
  Split far{interval, interval.begin, 0}, extreme = far;
  double sum = 0, log_arrangements = 0, most_z = 0;
  for (std::size_t i = 0; i + 1 < n; ++i) {
    sum += ranks[i];
    const auto left = static_cast<double>(i + 1);
    const double off = std::abs(sum - left * (count + 1) / 2);
    const double z = off / std::sqrt(left * (count - left) * (count + 1) / 12);
    if (z > most_z) {
      most_z = z;
      far.at = interval.begin + i + 1;
    }
    log_arrangements += std::log((count - left + 1) / left);
    const double missing = left * (count - left) / 2 - off;
    if (missing > 4 * count) continue;  // the normal approximation says more there
    const double surprise = surprise_near_extreme(std::max(missing, 0.0), log_arrangements);
    if (surprise > extreme.surprise) extreme = {interval, interval.begin + i + 1, surprise};
  }
  far.surprise = surprise_of_normal(most_z);
  return extreme.surprise > far.surprise ? extreme : far;
}

Level level_of(std::span<const double> values, std::size_t begin, std::size_t end) {
  const Spread spread = robust_spread(
      {values.begin() + static_cast<std::ptrdiff_t>(begin), values.begin() + static_cast<std::ptrdiff_t>(end)});
  return {begin, end, spread.median, spread.sigma};
}

// The boundary of two neighbouring levels where all values together lie nearest to their medians.
std::size_t boundary(std::span<const double> values, const Level& left, const Level& right) {
  double cost = 0, least = std::numeric_limits<double>::max();  // less what it is with everything on the right
  std::size_t best = left.end;
  for (std::size_t i = left.begin; i + 1 < right.end; ++i) {
    cost += std::abs(values[i] - left.median) - std::abs(values[i] - right.median);
    if (cost < least) {
      least = cost;
      best = i + 1;
    }
  }
  return best;
}

bool is_worth_telling(const Level& a, const Level& b) {
  const double shift = std::abs(b.median - a.median);
  return shift >= kLeastShift * std::min(std::abs(a.median), std::abs(b.median)) &&
         shift >= kLeastSigmas * std::min(a.sigma, b.sigma) && shift > 0;
}

}  // namespace

double surprise_limit(double false_alarms, double tests) { return std::log(std::max(tests, 1.0) / false_alarms); }

double most_unlikely_split(std::span<const double> values) {
  std::vector<std::size_t> order;
  std::vector<double> ranks;
  return values.size() < 2 ? 0 : best_split(values, {0, values.size()}, order, ranks).surprise;
}

std::vector<Level> find_levels(std::span<const double> values, double false_alarms) {
  if (values.empty()) return {};
  const std::vector<Window> intervals = seeded_intervals(values.size());
  double tests = 0;
  for (const Window& interval : intervals) tests += static_cast<double>(interval.length() - 1);
  const double limit = surprise_limit(false_alarms, tests);

  std::vector<Split> splits;
  std::vector<std::size_t> order;
  std::vector<double> ranks;
  for (const Window& interval : intervals) {
    const Split split = best_split(values, interval, order, ranks);
    if (split.surprise > limit) splits.push_back(split);
  }
  std::ranges::stable_sort(splits, [](const Split& a, const Split& b) {
    return a.interval.length() != b.interval.length() ? a.interval.length() < b.interval.length()
                                                      : a.surprise > b.surprise;
  });
  // A change explains every interval that it lies in.
  std::vector<std::size_t> cuts{0, values.size()};
  for (const Split& split : splits) {
    const bool is_explained = std::ranges::any_of(
        cuts, [&](std::size_t cut) { return cut > split.interval.begin && cut < split.interval.end; });
    if (!is_explained) cuts.push_back(split.at);
  }
  std::ranges::sort(cuts);

  std::vector<Level> levels;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) levels.push_back(level_of(values, cuts[i], cuts[i + 1]));
  for (std::size_t i = 0; i + 1 < levels.size(); ++i) {
    const std::size_t at = boundary(values, levels[i], levels[i + 1]);
    levels[i] = level_of(values, levels[i].begin, at);
    levels[i + 1] = level_of(values, at, levels[i + 1].end);
  }
  for (std::size_t i = 0; i + 1 < levels.size();) {
    if (is_worth_telling(levels[i], levels[i + 1])) {
      ++i;
    } else {
      levels[i] = level_of(values, levels[i].begin, levels[i + 1].end);
      levels.erase(levels.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  return levels;
}

std::vector<std::size_t> find_pauses(std::span<const double> values, std::span<const Level> levels) {
  std::vector<std::size_t> pauses;
  for (const Level& level : levels) {
    const double limit = level.median + std::max(kPausePart * std::abs(level.median), kPauseSigmas * level.sigma);
    for (std::size_t i = level.begin; i < level.end; ++i)
      if (values[i] > limit) pauses.push_back(i);
  }
  return pauses;
}

}  // namespace ms::tracepp
