// A fabric of numbers: healthy ways carry 100 Gbit/s and some, a round trip takes 10 us and some; faults are put in.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "net/judge/locate.h"

namespace ms::net::test {

// The same pair, of which nothing was measured.
inline PairResult silent(const PairResult& result, std::string why, int at_fault) {
  PairResult nothing;
  nothing.a = result.a;
  nothing.b = result.b;
  nothing.error = std::move(why);
  nothing.at_fault = at_fault;
  return nothing;
}

// Who is named, without how often.
inline std::vector<Culprit> culprits(const Locator& locator) {
  std::vector<Culprit> found;
  for (const Fault& fault : locator.faults()) {
    found.push_back(fault.culprit);
    found.back().bad = found.back().of = 0;
  }
  return found;
}

class FakeFabric {
 public:
  FakeFabric(int nodes, unsigned seed) : nodes_(nodes), random_(seed) {}

  // Called with every way that is measured.
  std::function<void(int from, int to, Way&)> way_fault = [](int, int, Way&) {};
  std::function<void(PairResult&)> pair_fault = [](PairResult&) {};
  std::function<void(const Round&)> round_begins = [](const Round&) {};
  double noise = 0.05;  // standard deviation of what a way carries

  PairResult measure(int a, int b, bool at_once) {
    std::normal_distribution<double> normal(0, 1);
    PairResult result;
    result.a = a;
    result.b = b;
    result.at_once = at_once;
    result.least_us = 10 + std::abs(normal(random_));
    result.p50_us = result.least_us + 1;
    result.p99_us = result.least_us + 9;
    for (const bool there : {true, false}) {
      Way& way = there ? result.there : result.back;
      way = {.gbps = 100 * (1 + noise * normal(random_)), .sent = 8000, .mtu = 9000};
      way_fault(there ? a : b, there ? b : a, way);
    }
    pair_fault(result);
    ++probes;
    return result;
  }
  // Of so many in a thousand.
  void lose(Way& way, double in_a_thousand) {
    way.lost = std::poisson_distribution<std::int64_t>(static_cast<double>(way.sent) * in_a_thousand / 1000)(random_);
  }
  int pick(int most) { return std::uniform_int_distribution<int>(0, most - 1)(random_); }

  Locator locate(LocateOptions options = {}) {
    Locator locator(nodes_, std::move(options));
    while (const std::optional<Round> round = locator.next()) {
      round_begins(*round);
      std::vector<PairResult> results;
      for (const auto& [a, b] : *round) results.push_back(measure(a, b, locator.covering()));
      locator.take(results);
      ++rounds;
    }
    return locator;
  }

  std::int64_t probes = 0;
  int rounds = 0;

 private:
  int nodes_;
  std::mt19937 random_;
};

}  // namespace ms::net::test
