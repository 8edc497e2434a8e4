#include "train/engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

namespace ms::train {
namespace {

// Leaves of the probabilities, which are not normalized, the largest that make up `top_p` of their sum; others become
// 0.
void keep_nucleus(std::vector<double>& probabilities, double top_p) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return probabilities[i]; });
  double left = top_p * std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (const std::size_t i : order) {
    if (left <= 0) {
      probabilities[i] = 0;
    } else {
      left -= probabilities[i];
    }
  }
}

}  // namespace

std::int32_t draw_token(std::span<const float> logits, const Sampling& sampling, double draw) {
  const auto likeliest = std::ranges::max_element(logits);
  if (!(sampling.temperature > 0)) return static_cast<std::int32_t>(likeliest - logits.begin());
  std::vector<double> sums(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) sums[i] = std::exp((logits[i] - *likeliest) / sampling.temperature);
  if (sampling.top_p < 1) keep_nucleus(sums, sampling.top_p);
  std::partial_sum(sums.begin(), sums.end(), sums.begin());
  const auto drawn = std::ranges::upper_bound(sums, draw * sums.back()) - sums.begin();
  return static_cast<std::int32_t>(std::min<std::ptrdiff_t>(drawn, std::ssize(logits) - 1));
}

}  // namespace ms::train
