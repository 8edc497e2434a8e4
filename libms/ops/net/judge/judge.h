// Judges a measurement by comparison with all others of the same check: most of a fabric is assumed to be healthy.
// Pure.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "net/measure/pair.h"

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

// Returns the latency above which a pair is late.
double late_us(const Normal& normal, const Thresholds& thresholds);
// Returns whether a way (`there`: a to b, else b to a) shows a symptom; false for Symptom::flap.
bool has(const PairResult& result, bool there, Symptom symptom, const Normal& normal, const Thresholds& thresholds);
// Returns whether the result measured that symptom at all.
bool tried(const PairResult& result, bool there, Symptom symptom);

}  // namespace ms::net
