// What is wrong with a measurement, by comparison with all others of the same check: most of a fabric is taken for
// healthy. Pure.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "net/measure/pair.h"

namespace ms::net {

// Of ways between nodes; flap: of a node, whose interface lost its carrier while it was tested.
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

// What is normal here. Three quarters of the ways may be worse: a bad switch of few is in many pairs.
struct Normal {
  double gbps = -1;        // the upper quartile of what ways carry, each in the middle of its measurements
  double latency_us = -1;  // the lower quartile of the pairs' least latencies, likewise
};
// Of each distance (0: below the same switch); `distance` counts from 0. Where a distance has less than eight ways,
// all distances together.
std::vector<Normal> normal_of(std::span<const PairResult> results, const std::function<int(int, int)>& distance);

// Of symptoms of ways.
bool has(const PairResult& result, bool there, Symptom symptom, const Normal& normal, const Thresholds& thresholds);
// Was it measured at all?
bool tried(const PairResult& result, bool there, Symptom symptom);

}  // namespace ms::net
