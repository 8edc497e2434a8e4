#include "data/source_shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace ms::data {
namespace {

// The part of a batch that is left in the sums after each batch that follows.
constexpr double kKept = 0.98;
constexpr int kTooManyLate = LoaderCount::kReview / 2;
constexpr double kAtEase = 0.6;  // of the period

}  // namespace

void SourceCosts::add(std::span<const Window> windows, std::span<const double> seconds) {
  for (Cost& cost : costs_) cost.seconds *= kKept, cost.windows *= kKept;
  all_.seconds *= kKept, all_.windows *= kKept;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    for (Cost* cost : {&costs_[static_cast<std::size_t>(windows[i].file)], &all_}) {
      cost->seconds += seconds[i];
      cost->windows += 1;
    }
  }
}

double SourceCosts::window_s(int source) const {
  for (const Cost& cost : {costs_[static_cast<std::size_t>(source)], all_}) {
    if (cost.seconds > 0) return cost.seconds / cost.windows;
  }
  return 1;
}

std::vector<double> SourceCosts::loads() const {
  std::vector<double> loads;
  for (const Cost& cost : costs_) loads.push_back(cost.seconds);
  return loads;
}

std::vector<Owners> divide_sources(std::span<const double> loads, int loaders) {
  MS_ASSERT(loaders >= 1, "{} loaders", loaders);
  const double all = std::reduce(loads.begin(), loads.end());
  std::vector<Owners> owners;
  double before = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    // Without loads, sources are as good as each other.
    const double load = all > 0 ? loads[i] / all : 1 / static_cast<double>(loads.size());
    const int first = std::min(static_cast<int>(before * loaders), loaders - 1);
    before += load;
    owners.push_back({first, std::clamp(static_cast<int>(std::ceil(before * loaders)) - 1, first, loaders - 1)});
  }
  return owners;
}

double fullness(std::span<const double> loads, std::span<const Owners> owners, int loaders) {
  const double mean = std::reduce(loads.begin(), loads.end()) / loaders;
  if (mean <= 0) return 1;
  std::vector<double> full(static_cast<std::size_t>(loaders));
  for (std::size_t i = 0; i < loads.size(); ++i) {
    double left = loads[i];
    for (int loader = owners[i].first; loader < owners[i].last; ++loader) {
      double& at = full[static_cast<std::size_t>(loader)];
      const double part = std::clamp(mean - at, 0.0, left);
      at += part, left -= part;
    }
    full[static_cast<std::size_t>(owners[i].last)] += left;
  }
  return std::ranges::max(full) / mean;
}

std::vector<std::vector<std::size_t>> deal(std::span<const Window> windows, std::span<const Owners> owners,
                                           const SourceCosts& costs, int loaders) {
  std::vector<std::vector<std::size_t>> dealt(static_cast<std::size_t>(loaders));
  std::vector<double> busy_s(dealt.size());
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const auto [first, last] = owners[static_cast<std::size_t>(windows[i].file)];
    const auto least = std::min_element(busy_s.begin() + first, busy_s.begin() + last + 1);
    *least += costs.window_s(windows[i].file);
    dealt[static_cast<std::size_t>(least - busy_s.begin())].push_back(i);
  }
  return dealt;
}

bool LoaderCount::add(const BatchTimes& batch) {
  sum_.period_s += batch.period_s, sum_.waited_s += batch.waited_s, sum_.read_s += batch.read_s;
  late_ += batch.is_late ? 1 : 0;
  if (++batches_ < kReview) return false;
  batches_ = 0;
  const BatchTimes sum = std::exchange(sum_, {});
  const int late = std::exchange(late_, 0);
  const double busy_s = sum.period_s - sum.waited_s;
  // With one loader less, the others would read what it reads.
  const double with_less_s = now_ > 1 ? busy_s + sum.read_s / (now_ - 1) - sum.read_s / now_ : busy_s;
  if (late > kTooManyLate) {
    now_ = std::min(2 * now_, most_);
  } else if (now_ > 1 && with_less_s < kAtEase * sum.period_s) {
    --now_;
  }
  return true;
}

}  // namespace ms::data
