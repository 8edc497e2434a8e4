#include "net/judge/judge.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ms::net {
namespace {

constexpr std::size_t kEnough = 8;

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return -1;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::ranges::nth_element(values, at);
  return *at;
}

struct Values {
  std::vector<double> gbps, latency_us;
  Normal normal() const { return {.gbps = quantile(gbps, 0.75), .latency_us = quantile(latency_us, 0.25)}; }
};

// All that was measured of a pair of nodes.
struct Measured {
  std::vector<double> there, back, latency_us;
  void add(const PairResult& result) {
    if (result.there.gbps >= 0) there.push_back(result.there.gbps);
    if (result.back.gbps >= 0) back.push_back(result.back.gbps);
    if (result.least_us >= 0) latency_us.push_back(result.least_us);
  }
  // Each way once, however often it was measured: what looks bad is measured again and again.
  void add_to(Values& values) const {
    for (const std::vector<double>& way : {there, back})
      if (!way.empty()) values.gbps.push_back(quantile(way, 0.5));
    if (!latency_us.empty()) values.latency_us.push_back(quantile(latency_us, 0.5));
  }
};

}  // namespace

std::vector<Normal> normal_of(std::span<const PairResult> results, const std::function<int(int, int)>& distance) {
  std::map<std::pair<int, int>, Measured> pairs;
  for (const PairResult& result : results) pairs[{result.a, result.b}].add(result);
  Values all;
  std::vector<Values> apart;
  for (const auto& [pair, measured] : pairs) {
    const auto d = static_cast<std::size_t>(distance(pair.first, pair.second));
    if (d >= apart.size()) apart.resize(d + 1);
    measured.add_to(apart[d]);
    measured.add_to(all);
  }
  std::vector<Normal> normal;
  for (const Values& values : apart) normal.push_back((values.gbps.size() < kEnough ? all : values).normal());
  return normal;
}

void SlowByChance::add(Pair way, double cpu_wait, bool slow) {
  Count& calm = by_wait_[0];
  if (cpu_wait < kCalm) {
    if (slow) {
      slow_while_calm_.insert(way);
    } else if (calm.ways.insert(way).second && slow_while_calm_.contains(way)) {
      ++calm.slow;
    }
    return;
  }
  for (std::size_t at = tenth(kCalm); at <= tenth(cpu_wait); ++at)
    if (by_wait_[at].ways.insert(way).second && slow) ++by_wait_[at].slow;
}

double SlowByChance::chance(double cpu_wait) const {
  const bool calm = cpu_wait < kCalm;
  const Count& count = by_wait_[calm ? 0 : tenth(cpu_wait)];
  const auto ways = static_cast<int>(count.ways.size());
  if (!calm && ways < kLeast) return 1;
  return (count.slow + 1.0) / (ways + (calm ? kCalmPrior : 2));  // Laplace's rule of succession
}

double late_us(const Normal& normal, const Thresholds& thresholds) {
  return std::max(thresholds.latency_times * normal.latency_us, normal.latency_us + thresholds.latency_least_us);
}

bool tried(const PairResult& result, bool there, Symptom symptom) {
  const Way& way = there ? result.there : result.back;
  switch (symptom) {
    case Symptom::silent: return true;
    case Symptom::bandwidth: return way.gbps >= 0;
    case Symptom::loss: return way.sent > 0;
    case Symptom::size: return way.mtu > 0;
    case Symptom::latency: return result.least_us >= 0;
    case Symptom::flap: break;
  }
  return false;
}

bool has(const PairResult& result, bool there, Symptom symptom, const Normal& normal, const Thresholds& thresholds) {
  const Way& way = there ? result.there : result.back;
  if (!tried(result, there, symptom)) return false;
  switch (symptom) {
    case Symptom::silent:
      // A pair that cannot be measured is silent both ways, unless it is known which way cannot be connected.
      if (result.there.unreached.empty() && result.back.unreached.empty()) return !result.error.empty();
      return !way.unreached.empty();
    case Symptom::bandwidth: return way.gbps < thresholds.slow * normal.gbps;
    case Symptom::loss:
      return way.lost >= thresholds.lost_least &&
             static_cast<double>(way.lost) > thresholds.lost * static_cast<double>(way.sent);
    case Symptom::size: return !way.large_pass;
    case Symptom::latency: return result.network_us() > late_us(normal, thresholds);
    case Symptom::flap: break;
  }
  return false;
}

}  // namespace ms::net
