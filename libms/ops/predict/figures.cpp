#include "predict/figures.h"

#include <algorithm>
#include <array>

#include "base/rng.h"

namespace ms::predict {
namespace {

constexpr std::array<double Figures::*, 8> kAll{
    &Figures::precision_at_k,     &Figures::recall_at_k, &Figures::pr_auc,  &Figures::precision_at_recall,
    &Figures::precision_beyond_k, &Figures::lead_days,   &Figures::flagged, &Figures::caught};

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Ties are in the order of a hash of the unit, which favours no method.
bool before(const Outcome& a, const Outcome& b) {
  if (a.score != b.score) return a.score > b.score;
  const auto key = [](const Outcome& row) { return random_u64(row.decision, rng_key("predict ties"), row.unit); };
  return key(a) < key(b);
}

// One run's rows in the two orders that figures need, so that resamples only add.
class Ranked {
 public:
  explicit Ranked(std::span<const Outcome> outcomes)
      : all_(outcomes.begin(), outcomes.end()), by_day_(outcomes.begin(), outcomes.end()) {
    std::sort(all_.begin(), all_.end(), before);
    std::sort(by_day_.begin(), by_day_.end(), [](const Outcome& a, const Outcome& b) {
      return a.decision != b.decision ? a.decision < b.decision : before(a, b);
    });
  }

  Figures operator()(const FigureOptions& options, std::span<const std::uint32_t> weights) const {
    const auto weight = [&](const Outcome& row) { return weights.empty() ? 1.0 : weights[row.unit]; };
    Figures out;
    double failing = 0;
    for (const Outcome& row : all_) failing += row.fails ? weight(row) : 0;
    at_k(out, options, weight, failing);
    double seen = 0, found = 0, area = 0;
    for (std::size_t i = 0; i < all_.size();) {
      double block = 0, hits = 0;
      const float score = all_[i].score;
      do {
        block += weight(all_[i]);
        hits += all_[i].fails ? weight(all_[i]) : 0;
      } while (++i < all_.size() && all_[i].score == score);
      const bool was_below = found < options.recall * failing;
      seen += block;
      found += hits;
      area += hits * ratio(found, seen);
      if (was_below && found >= options.recall * failing) out.precision_at_recall = ratio(found, seen);
    }
    out.pr_auc = ratio(area, failing);
    out.precision_beyond_k = ratio(failing - out.caught, seen - out.flagged);
    return out;
  }

 private:
  void at_k(Figures& out, const FigureOptions& options, const auto& weight, double failing) const {
    std::vector<float> leads;
    double taken = 0;
    for (std::size_t i = 0; i < by_day_.size(); ++i) {
      const Outcome& row = by_day_[i];
      if (i == 0 || by_day_[i - 1].decision != row.decision) taken = 0;
      const double count = std::min(weight(row), static_cast<double>(options.k) - taken);
      if (count <= 0) continue;
      taken += count;
      out.flagged += count;
      if (!row.fails) continue;
      out.caught += count;
      leads.push_back(row.days_to_failure);
    }
    out.precision_at_k = ratio(out.caught, out.flagged);
    out.recall_at_k = ratio(out.caught, failing);
    if (leads.empty()) return;
    const auto middle = leads.begin() + static_cast<std::ptrdiff_t>(leads.size() / 2);
    std::nth_element(leads.begin(), middle, leads.end());
    out.lead_days = *middle;
  }

  std::vector<Outcome> all_, by_day_;
};

}  // namespace

Figures figures(std::span<const Outcome> outcomes, const FigureOptions& options,
                std::span<const std::uint32_t> weights) {
  return Ranked(outcomes)(options, weights);
}

Estimate estimate(const std::vector<std::vector<Outcome>>& runs, std::size_t units, const FigureOptions& options) {
  std::vector<Ranked> ranked(runs.begin(), runs.end());
  Estimate out;
  for (const Ranked& run : ranked) {
    const Figures one = run(options, {});
    for (const auto member : kAll) out.value.*member += one.*member / static_cast<double>(runs.size());
  }
  std::vector<Figures> all;
  for (int i = 0; i < options.resamples; ++i) {
    std::vector<std::uint32_t> weights(units);
    const auto stream = rng_key("predict resample") + static_cast<std::uint64_t>(i);
    for (std::size_t unit = 0; unit < units; ++unit) ++weights[uniform_below(options.seed, stream, unit, units)];
    all.push_back(ranked[uniform_below(options.seed, stream, units, ranked.size())](options, weights));
  }
  for (const auto member : kAll) {
    std::vector<double> values;
    for (const Figures& one : all) values.push_back(one.*member);
    std::sort(values.begin(), values.end());
    const auto last = static_cast<double>(values.size()) - 1;
    if (values.empty()) continue;
    out.low.*member = values[static_cast<std::size_t>(last * 0.025)];
    out.high.*member = values[static_cast<std::size_t>(last * 0.975 + 0.5)];
  }
  return out;
}

}  // namespace ms::predict
