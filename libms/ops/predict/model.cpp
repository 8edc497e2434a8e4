#include "predict/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace ms::predict {

extern const ModelKind kTrees, kLogistic, kMlp, kCnn;

namespace {

constexpr float kMostSpreads = 6;

constexpr std::array<const ModelKind*, 4> kModels{&kTrees, &kMlp, &kLogistic, &kCnn};

// A model whose training saw only a part of the healthy rows, so that its odds are too high.
class Shifted final : public Model {
 public:
  Shifted(std::unique_ptr<Model> model, float shift) : model_(std::move(model)), shift_(shift) {}
  void score(std::span<const float> values, std::size_t width, std::span<float> out) const override {
    model_->score(values, width, out);
    for (float& odds : out) {
      odds += shift_;
      if (!std::isfinite(odds)) {
        throw user_error("predict.unknown", "cannot know: the model gives a score that is no number",
                         "it was trained on values that are too large; look at the telemetry, and train again");
      }
    }
  }
  Json save() const override {
    Json json = model_->save();
    json["shift"] = shift_;
    return json;
  }

 private:
  std::unique_ptr<Model> model_;
  float shift_;
};

std::vector<float> weights_of(const TrainingSet& set) {
  std::vector<float> weights(set.chosen.size(), 1.0F);
  double sum = 0, failing = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!set.fails(set.chosen[i])) continue;
    const double days = set.outcome(set.chosen[i]).days_to_failure - set.task.lead_days;
    weights[i] = static_cast<float>(std::exp(-days / (kWeightFalls * set.task.horizon_days)));
    sum += weights[i];
    ++failing;
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (set.fails(set.chosen[i])) weights[i] *= static_cast<float>(failing / sum);
  }
  return weights;
}

}  // namespace

std::span<const ModelKind* const> model_kinds() { return kModels; }

const ModelKind* find_model(std::string_view name) {
  const auto found =
      std::find_if(kModels.begin(), kModels.end(), [&](const ModelKind* row) { return row->name == name; });
  return found == kModels.end() ? nullptr : *found;
}

std::unique_ptr<Model> train_model(const ModelKind& kind, TrainingSet set) {
  const auto failing = static_cast<std::size_t>(
      std::count_if(set.chosen.begin(), set.chosen.end(), [&](std::size_t row) { return set.fails(row); }));
  const std::size_t healthy = set.chosen.size() - failing;
  const std::size_t wanted = failing * kHealthyPerFailing;
  if (healthy > wanted) {
    set.healthy_kept = static_cast<double>(wanted) / static_cast<double>(healthy);
    std::erase_if(set.chosen, [&](std::size_t row) {
      return !set.fails(row) && uniform(set.seed, rng_key("healthy rows"), row) >= set.healthy_kept;
    });
  }
  set.weights = weights_of(set);
  return std::make_unique<Shifted>(kind.train(set), static_cast<float>(std::log(set.healthy_kept)));
}

std::unique_ptr<Model> load_model(const ModelKind& kind, const Json& json, const Layout& layout) {
  const auto shift = json.get<float>("shift");
  if (!std::isfinite(shift)) throw JsonError("shift is not finite");
  return std::make_unique<Shifted>(kind.load(json, layout), shift);
}

Scale::Scale(const TrainingSet& set, std::size_t first, std::size_t count)
    : first_(first), mean_(count), per_spread_(count) {
  std::vector<double> sum(count), squares(count);
  std::vector<std::int64_t> known(count);
  for (const std::size_t row : set.chosen) {
    const std::span<const float> values = set.rows.row(row).subspan(first, count);
    for (std::size_t c = 0; c < count; ++c) {
      if (std::isnan(values[c])) continue;
      sum[c] += values[c];
      squares[c] += static_cast<double>(values[c]) * values[c];
      ++known[c];
    }
  }
  for (std::size_t c = 0; c < count; ++c) {
    if (known[c] == 0) continue;
    const double mean = sum[c] / static_cast<double>(known[c]);
    const double variance = squares[c] / static_cast<double>(known[c]) - mean * mean;
    mean_[c] = static_cast<float>(mean);
    // A column that is the same everywhere says nothing.
    if (variance > 1e-9 * std::max(1.0, mean * mean)) per_spread_[c] = static_cast<float>(1 / std::sqrt(variance));
  }
}

Scale::Scale(const Json& json, std::size_t first, std::size_t count)
    : first_(first),
      mean_(finite_numbers(json, "mean", count)),
      per_spread_(finite_numbers(json, "per_spread", count)) {}

void Scale::apply(std::span<const float> row, float* out) const {
  for (std::size_t c = 0; c < mean_.size(); ++c) {
    const float value = row[first_ + c];
    out[c] = std::isnan(value) ? 0 : std::clamp((value - mean_[c]) * per_spread_[c], -kMostSpreads, kMostSpreads);
  }
}

Json Scale::save() const { return Json{{"mean", mean_}, {"per_spread", per_spread_}}; }

std::vector<float> finite_numbers(const Json& json, std::string_view key, std::size_t count) {
  auto numbers = json.get<std::vector<float>>(key);
  if (numbers.size() != count) throw JsonError(fmt::format("{} has {} numbers, not {}", key, numbers.size(), count));
  for (const float number : numbers) {
    if (!std::isfinite(number)) throw JsonError(fmt::format("{} has a number that is not finite", key));
  }
  return numbers;
}

}  // namespace ms::predict
