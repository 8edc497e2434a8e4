#include "tracepp/findings/outliers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr double kDeviations = 6;  // that a unit differs from others by chance, at the most
constexpr double kDeviationsOfSteps = 5;
constexpr std::size_t kFewUnits = 8;  // cannot tell how much units differ
constexpr std::size_t kLeastSteps = 3;
constexpr double kShortTimes = 1.5;

// Returns the first and last step of the interval in which a unit exceeded `level` by the largest sum.
std::pair<std::size_t, std::size_t> worst_interval(std::span<const double> excess, double level) {
  double sum = 0, most = -std::numeric_limits<double>::infinity();
  std::size_t first = 0;
  std::pair<std::size_t, std::size_t> worst{0, 0};
  for (std::size_t step = 0; step < excess.size(); ++step) {
    if (sum <= 0) sum = 0, first = step;
    // A single bad step must not drag quiet ones in with it.
    sum += std::isnan(excess[step]) ? 0 : std::min(excess[step] - level, 3 * level);
    if (sum > most) most = sum, worst = {first, step};
  }
  return worst;
}

}  // namespace

std::vector<Outlier> find_outliers(std::span<const float> values, std::size_t steps, std::span<const int> peers,
                                   double least_excess) {
  const std::size_t units = peers.size();
  std::vector<std::vector<int>> groups(units == 0 ? 0 : static_cast<std::size_t>(*std::ranges::max_element(peers)) + 1);
  for (std::size_t unit = 0; unit < units; ++unit)
    groups[static_cast<std::size_t>(peers[unit])].push_back(static_cast<int>(unit));

  std::vector<double> excess(units * steps, std::numeric_limits<double>::quiet_NaN()), some;
  const auto at = [&](int unit, std::size_t step) { return static_cast<std::size_t>(unit) * steps + step; };
  for (const std::vector<int>& group : groups) {
    double usual = 0;
    if (group.size() == 1) {
      some.clear();
      for (std::size_t step = 0; step < steps; ++step)
        if (const float value = values[at(group[0], step)]; std::isfinite(value)) some.push_back(value);
      if (some.empty()) continue;
      usual = quantile(some, 0.25);
    }
    for (std::size_t step = 0; step < steps; ++step) {
      if (group.size() > 1) {
        some.clear();
        for (const int unit : group)
          if (const float value = values[at(unit, step)]; std::isfinite(value)) some.push_back(value);
        if (some.size() < 2) continue;
        usual = quantile(some, 0.5);
      }
      if (!(usual > 0)) continue;
      for (const int unit : group) excess[at(unit, step)] = values[at(unit, step)] / usual - 1;
    }
  }

  // How much units differ, and steps of one unit.
  std::vector<double> middles, varied;
  for (std::size_t unit = 0; unit < units; ++unit) {
    some.clear();
    const std::span<const double> of_unit(excess.data() + unit * steps, steps);
    std::ranges::copy_if(of_unit, std::back_inserter(some), [](double value) { return !std::isnan(value); });
    if (some.empty()) continue;
    const double middle = quantile(some, 0.5);
    middles.push_back(middle);
    if (units > 1) {
      for (const double value : some) varied.push_back(value - middle);
      continue;
    }
    // The deviations of a single unit would include the very change that is sought; its differences from step to step
    // do not.
    for (std::size_t step = 1; step < steps; ++step)
      if (const double change = of_unit[step] - of_unit[step - 1]; !std::isnan(change))
        varied.push_back(change / std::numbers::sqrt2);
  }
  const double between = middles.size() < kFewUnits ? 0 : robust_spread(middles).sigma,
               within = robust_spread(varied).sigma;

  std::vector<Outlier> found;
  for (std::size_t unit = 0; unit < units; ++unit) {
    const std::span<const double> of_unit(excess.data() + unit * steps, steps);
    const double level = std::max(least_excess, kDeviations * between);
    const auto [first, last] = worst_interval(of_unit, level / 2);
    const std::size_t count = last - first + 1;
    if (count < std::min(kLeastSteps, steps)) continue;
    some.clear();
    for (std::size_t step = first; step <= last; ++step)
      if (!std::isnan(of_unit[step])) some.push_back(of_unit[step]);
    if (some.empty()) continue;
    // Consecutive steps are correlated, so the noise of a mean falls more slowly than with the square root of their
    // number.
    const double noise = within / std::pow(static_cast<double>(some.size()), 0.25);
    // There are many short intervals, so the worst of them is high by chance.
    const double doubt = 2 * count < steps ? kShortTimes : 1;
    const double threshold = doubt * std::max(level, std::hypot(kDeviationsOfSteps * noise, level / 2));
    const double middle = quantile(some, 0.5);
    if (middle >= threshold) found.push_back({static_cast<int>(unit), middle, first, last, threshold});
  }
  std::ranges::stable_sort(found, std::ranges::greater{}, &Outlier::excess);
  return found;
}

}  // namespace ms::tracepp
