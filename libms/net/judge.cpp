#include "net/judge.h"

#include <algorithm>

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
  void add(const PairResult& result) {
    for (const Way* way : {&result.there, &result.back})
      if (way->gbps >= 0) gbps.push_back(way->gbps);
    if (result.least_us >= 0) latency_us.push_back(result.least_us);
  }
  Normal normal() const { return {.gbps = quantile(gbps, 0.75), .latency_us = quantile(latency_us, 0.25)}; }
};

}  // namespace

std::vector<Normal> normal_of(std::span<const PairResult> results, const std::function<int(int, int)>& distance) {
  Values all;
  std::vector<Values> apart;
  for (const PairResult& result : results) {
    const auto d = static_cast<std::size_t>(distance(result.a, result.b));
    if (d >= apart.size()) apart.resize(d + 1);
    apart[d].add(result);
    all.add(result);
  }
  std::vector<Normal> normal;
  for (const Values& values : apart) normal.push_back((values.gbps.size() < kEnough ? all : values).normal());
  return normal;
}

bool tried(const PairResult& result, bool there, Symptom symptom) {
  const Way& way = there ? result.there : result.back;
  switch (symptom) {
    case Symptom::silent:
      return true;
    case Symptom::bandwidth:
      return way.gbps >= 0;
    case Symptom::loss:
      return way.sent > 0;
    case Symptom::size:
      return way.mtu > 0;
    case Symptom::latency:
      return result.least_us >= 0;
    case Symptom::flap:
      break;
  }
  return false;
}

bool has(const PairResult& result, bool there, Symptom symptom, const Normal& normal, const Thresholds& thresholds) {
  const Way& way = there ? result.there : result.back;
  if (!tried(result, there, symptom)) return false;
  switch (symptom) {
    case Symptom::silent:
      return !result.error.empty();
    case Symptom::bandwidth:
      return way.gbps < thresholds.slow * normal.gbps;
    case Symptom::loss:
      return way.lost >= thresholds.lost_least &&
             static_cast<double>(way.lost) > thresholds.lost * static_cast<double>(way.sent);
    case Symptom::size:
      return !way.large_pass;
    case Symptom::latency:
      return result.least_us >
             std::max(thresholds.latency_times * normal.latency_us, normal.latency_us + thresholds.latency_least_us);
    case Symptom::flap:
      break;
  }
  return false;
}

}  // namespace ms::net
