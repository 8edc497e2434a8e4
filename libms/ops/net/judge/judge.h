// Judges a measurement by comparison with all others of the same check: most of a fabric is assumed to be healthy.
// Pure.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "net/measure/pair.h"
#include "net/measure/schedule.h"

namespace ms::net {

// Symptoms of a way between two nodes. A flap is a node's: its interface lost its carrier during the test.
enum class Symptom { silent, bandwidth, loss, size, latency, flap };
inline constexpr int kWaySymptoms = 5;  // all but flap
constexpr std::string_view to_string(Symptom symptom) {
  constexpr std::array<std::string_view, 6> kNames{"silent", "bandwidth", "loss", "size", "latency", "flap"};
  return kNames[static_cast<std::size_t>(symptom)];
}

struct Thresholds {
  double slow = 0.7;              // of what others have: below is slow
  double latency_times = 2;       // of what others have: above is late,
  double latency_least_us = 100;  // if by so much at least
  double lost = 1e-4;             // of the datagrams, above
  int lost_least = 2;             // and so many of them
};

// Normal values of this fabric. Quartiles: one bad switch of few is in many pairs, so three quarters may be worse.
struct Normal {
  double gbps = -1;        // the upper quartile of what ways carry, each in the middle of its measurements
  double latency_us = -1;  // the lower quartile of the pairs' least latencies, likewise
};
// Returns the normal values by distance (0: below the same switch); `distance` counts from 0. A distance with fewer
// than eight ways gets the values of all distances together.
std::vector<Normal> normal_of(std::span<const PairResult> results, const std::function<int(int, int)>& distance);

// How often ways are slow by chance. The waits of a stream's ends for a CPU predict no rate: buffers hide most of
// them, and a path of virtual interfaces waits as well. So a slow way is compared with all ways whose ends waited at
// least as long, those at fault among them: then more tests are needed to accuse. If the ends hardly waited, it is
// compared with the ways that have carried a normal rate at least once.
class SlowByChance {
 public:
  // Only the first measurement of a way counts at such waits, as slow ways are measured more often.
  void add(Pair way, double cpu_wait, bool slow);
  // Returns the probability that a way is slow at such waits; 1 if too few ways tell.
  double chance(double cpu_wait) const;
  static constexpr double kCalm = 0.3;   // waits below: on an idle machine a receiver waits for a tenth to a quarter
  static constexpr int kCalmPrior = 20;  // good ways that are taken for granted at such waits
  static constexpr int kLeast = 10;      // ways that tell, at longer ones

 private:
  struct Count {
    int slow = 0;
    std::set<Pair> ways = {};
  };
  static constexpr std::size_t kTenths = 10;
  static std::size_t tenth(double cpu_wait) {
    return std::min(kTenths - 1, static_cast<std::size_t>(std::max(cpu_wait, 0.0) * kTenths));
  }
  std::array<Count, kTenths> by_wait_;  // from so many tenths; the first is below kCalm
  std::set<Pair> slow_while_calm_;
};

// Returns the latency above which a pair is late.
double late_us(const Normal& normal, const Thresholds& thresholds);
// Returns whether a way (`there`: a to b, else b to a) shows a symptom; false for Symptom::flap.
bool has(const PairResult& result, bool there, Symptom symptom, const Normal& normal, const Thresholds& thresholds);
// Returns whether the result measured that symptom at all.
bool tried(const PairResult& result, bool there, Symptom symptom);

}  // namespace ms::net
