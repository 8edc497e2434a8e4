// How much of its nodes inference keeps.
#include <algorithm>
#include <cmath>

#include "loan/replay.h"

namespace ms::loan {
namespace {

// The least value that the demand did not exceed for this part of the time.
int quantile_of(const Demand& demand, double quantile, double from_s, double to_s) {
  std::vector<std::pair<int, double>> held;  // nodes, for how long
  const auto after = std::ranges::upper_bound(demand.steps, from_s, {}, &std::pair<double, int>::first);
  const auto first = static_cast<std::size_t>(after - demand.steps.begin());
  for (std::size_t i = first - std::min<std::size_t>(first, 1); i < demand.steps.size(); ++i) {
    if (demand.steps[i].first >= to_s) break;
    const double begin = std::max(from_s, demand.steps[i].first);
    const double end = i + 1 < demand.steps.size() ? std::min(to_s, demand.steps[i + 1].first) : to_s;
    if (end > begin) held.emplace_back(demand.steps[i].second, end - begin);
  }
  std::sort(held.begin(), held.end());
  double left_s = 0;
  for (const auto& [nodes, seconds] : held) left_s += seconds * quantile;
  for (const auto& [nodes, seconds] : held) {
    left_s -= seconds;
    if (left_s <= 1e-9) return nodes;
  }
  return 0;  // the window is empty
}

}  // namespace

int needed_nodes(int demand_nodes, const LoanConfig& loan) {
  return static_cast<int>(std::ceil(demand_nodes * (1 + loan.headroom_percent / 100) - 1e-9));
}

int kept_nodes(const Demand& demand, const LoanConfig& loan, double time_s) {
  const int recent = quantile_of(demand, loan.reserve_quantile, time_s - loan.reserve_window_s, time_s);
  return needed_nodes(std::max(demand.at(time_s), recent), loan);
}

}  // namespace ms::loan
