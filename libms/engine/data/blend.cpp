#include "data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace ms::data {
namespace {

constexpr double kDecimals = 1e6;  // of a weight that count

// The weights as integers that sum to at most max_period, each at least 1 unless its weight is 0.
std::vector<std::int64_t> integer_shares(std::span<const double> weights, std::int64_t max_period) {
  if (std::ranges::all_of(weights, [](double weight) { return weight == 0; })) {
    throw user_error("data.weight", "a blend needs at least one source with a weight above 0");
  }
  std::vector<std::int64_t> shares;
  std::int64_t divisor = 0;
  for (const double weight : weights) {
    if (weight != 0 && !Blend::possible(weight)) {
      throw user_error("data.weight", fmt::format("the weight {} of a data source is not between {:f} and {:.0f}",
                                                  weight, Blend::kMinWeight, Blend::kMaxWeight));
    }
    shares.push_back(std::llround(weight * kDecimals));
    divisor = std::gcd(divisor, shares.back());
  }
  for (std::int64_t& share : shares) share /= divisor;
  const std::int64_t sum = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  if (sum <= max_period) return shares;

  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double scaled = static_cast<double>(shares[i]) / static_cast<double>(sum) * static_cast<double>(max_period);
    shares[i] = static_cast<std::int64_t>(scaled);
    if (shares[i] == 0 && weights[i] > 0) {
      throw user_error(
          "data.weight",
          fmt::format("the weight {} of entry {} of data.train is below 1/{} of all weights, so it would never be read",
                      weights[i], i + 1, max_period));
    }
  }
  return shares;
}

}  // namespace

Blend::Blend(std::span<const double> weights, std::int64_t max_period) : shares_(integer_shares(weights, max_period)) {
  const std::int64_t period = std::accumulate(shares_.begin(), shares_.end(), std::int64_t{0});
  slots_.reserve(static_cast<std::size_t>(period));
  std::vector<std::int64_t> taken(shares_.size(), 0);
  // deficit = share of the slots up to and with this one, less what was taken, times the period. The largest one is
  // always positive, so no source overtakes its share by a whole sample and all deficits are 0 at the end.
  std::vector<std::int64_t> deficit(shares_.size(), 0);
  for (std::int64_t slot = 0; slot < period; ++slot) {
    std::size_t next = 0;
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      deficit[i] += shares_[i];
      if (deficit[i] > deficit[next]) next = i;
    }
    deficit[next] -= period;
    slots_.push_back({static_cast<std::int32_t>(next), static_cast<std::int32_t>(taken[next]++)});
  }
}

Blend::Draw Blend::draw(std::int64_t sample) const {
  MS_ASSERT(sample >= 0, "sample {} of a blend", sample);
  const Slot slot = slots_[static_cast<std::size_t>(sample % period())];
  return {slot.source, sample / period() * share(slot.source) + slot.ordinal};
}

std::vector<std::int64_t> Blend::draws(std::int64_t samples) const {
  std::vector<std::int64_t> counts;
  for (const std::int64_t share : shares_) counts.push_back(samples / period() * share);
  for (std::int64_t slot = 0; slot < samples % period(); ++slot) {
    ++counts[static_cast<std::size_t>(slots_[static_cast<std::size_t>(slot)].source)];
  }
  return counts;
}

}  // namespace ms::data
