// Which of several weighted sources sample g comes from, as a pure function of g. The weights become small integers
// whose sum is the length of one period; within a period the source that lags most behind its share goes next, so the
// proportions are exact over every period and never off by a whole number of samples for long. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::data {

class Blend {
 public:
  // Weights are taken to six decimals; a source of weight 0 is never drawn. They are kept exactly when their common
  // period is at most max_period samples ("0.7" and "0.3": 10), and are otherwise rounded to 1/max_period.
  // Error("data.weight", user) where no weight is above 0, one is not possible(), or too small to ever be drawn.
  explicit Blend(std::span<const double> weights, std::int64_t max_period = kMaxPeriod);

  struct Draw {
    int source;
    std::int64_t ordinal;  // how many times the source was drawn before this sample
  };
  Draw draw(std::int64_t sample) const;
  // How many of the first `samples` samples are of each source.
  std::vector<std::int64_t> draws(std::int64_t samples) const;

  std::int64_t period() const { return static_cast<std::int64_t>(slots_.size()); }
  // Samples of the source in one period.
  std::int64_t share(int source) const { return shares_[static_cast<std::size_t>(source)]; }

  static constexpr std::int64_t kMaxPeriod = 1 << 16;
  static constexpr double kMinWeight = 1e-6;
  static constexpr double kMaxWeight = 1e6;
  static bool possible(double weight) { return weight >= kMinWeight && weight <= kMaxWeight; }  // false for NaN

 private:
  std::vector<std::int64_t> shares_;
  // As a Draw, in half its memory: a period has as many slots at most as fit.
  struct Slot {
    std::int32_t source, ordinal;
  };
  std::vector<Slot> slots_;  // one period
};

}  // namespace ms::data
