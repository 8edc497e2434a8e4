// Rates and wrong words between the GPUs of a node, pair by pair, and the GPUs that they accuse. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/finding.h"

namespace ms::diag {

// By sender and receiver; a GPU with itself is 0.
struct GpuPairs {
  explicit GpuPairs(std::vector<std::string> names)
      : gpus(std::move(names)),
        gbps(gpus.size(), std::vector<double>(gpus.size())),
        wrong(gpus.size(), std::vector<std::size_t>(gpus.size())) {}

  std::vector<std::string> gpus;                // "gpu 3"
  std::vector<std::vector<double>> gbps;        // 10^9 bytes a second, while the pair sends both ways
  std::vector<std::vector<std::size_t>> wrong;  // words that arrived otherwise than they were sent

  double slower_way(std::size_t a, std::size_t b) const { return std::min(gbps[a][b], gbps[b][a]); }
};

// The rate of a GPU with the others, each way: the lower median of its pairs.
double typical_gbps(const GpuPairs& pairs, std::size_t gpu);

// Returns a warning for each GPU whose words were wrong with all others, and for each other pair with wrong words.
std::vector<Finding> wrong_gpus(const GpuPairs& pairs);

// Returns a warning for each GPU that is slow with all others: its best pair is below half of the lower median of pairs
// without it. Fewer than four GPUs do not tell which one is slow: no warning.
std::vector<Finding> slow_gpus(const GpuPairs& pairs);

}  // namespace ms::diag
