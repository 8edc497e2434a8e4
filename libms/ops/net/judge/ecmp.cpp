#include "net/judge/ecmp.h"

#include <algorithm>
#include <numeric>

namespace ms::net {
namespace {

// Two flows on one path have half of it each, so sorts lie apart by 1.5 (three to two on equal paths) or more.
constexpr double kRatio = 1.4;
constexpr double kMoreThanOne = 1.3;  // paths
constexpr double kKept = 0.7;         // of what a pair carries alone

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

std::vector<int> lower_sort(const std::vector<double>& values, double ratio) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](int i) { return std::max(values[static_cast<std::size_t>(i)], 1e-9); };
  std::ranges::sort(order, {}, value);
  std::size_t cut = 0;
  double widest = ratio;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const double step = value(order[i]) / value(order[i - 1]);
    if (step >= widest) {
      widest = step;
      cut = i;
    }
  }
  order.resize(cut);
  std::ranges::sort(order);
  return order;
}

FlowJudgement judge_flows(const std::vector<double>& alone, const std::vector<double>& together, double link_gbps) {
  FlowJudgement judgement;
  const double sum = std::accumulate(together.begin(), together.end(), 0.0);
  const double one = median_of(alone);
  const bool is_full = link_gbps > 0 && sum > 0.8 * link_gbps;
  judgement.paths = one > 0 ? std::max(1.0, sum / one) : 1;
  const auto fill = [&](FlowVerdict verdict, std::vector<int> slow, const std::vector<double>& values) {
    std::vector<double> low, high;
    for (std::size_t i = 0; i < values.size(); ++i)
      (std::ranges::find(slow, static_cast<int>(i)) != slow.end() ? low : high).push_back(values[i]);
    judgement.verdict = verdict;
    judgement.slow = std::move(slow);
    judgement.slow_gbps = median_of(low);
    judgement.fast_gbps = median_of(high);
  };
  if (std::vector<int> slow = lower_sort(alone, kRatio); !slow.empty()) {
    fill(FlowVerdict::slow_path, std::move(slow), alone);
  } else if (slow = lower_sort(together, kRatio); !slow.empty() && judgement.paths > kMoreThanOne && !is_full) {
    fill(FlowVerdict::collision, std::move(slow), together);
  } else {
    judgement.fast_gbps = judgement.slow_gbps = median_of(together);
  }
  return judgement;
}

Crowding judge_crowding(const std::vector<double>& alone, const std::vector<double>& beside_others) {
  Crowding crowding;
  for (std::size_t i = 0; i < alone.size(); ++i)
    if (beside_others[i] < kKept * alone[i]) crowding.pairs.push_back(static_cast<int>(i));
  if (alone.size() < 2) crowding.pairs.clear();  // beside no other pair
  if (!crowding.pairs.empty()) crowding.sharing = crowding.pairs.size() == alone.size() ? Sharing::all : Sharing::some;
  return crowding;
}

}  // namespace ms::net
