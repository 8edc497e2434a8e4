#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace ms::optim {
namespace {

double lowest(const OptimConfig& config) { return config.lr * config.min_lr_ratio; }

// Returns how much of a decay from `begin` on is done: 0 at its first step and 1 at the last step of the run.
double progress(std::int64_t begin, std::int64_t step, std::int64_t steps) {
  const auto length = static_cast<double>(std::max<std::int64_t>(1, steps - 1 - begin));
  return std::clamp(static_cast<double>(step - begin) / length, 0.0, 1.0);
}

double cosine(const OptimConfig& config, std::int64_t step, std::int64_t steps) {
  const double low = lowest(config);
  return low +
         (config.lr - low) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress(config.warmup_steps, step, steps)));
}

double fall_from(const OptimConfig& config, std::int64_t begin, std::int64_t step, std::int64_t steps) {
  if (step < begin) return config.lr;
  return config.lr + (lowest(config) - config.lr) * progress(begin, step, steps);
}

double linear(const OptimConfig& config, std::int64_t step, std::int64_t steps) {
  return fall_from(config, config.warmup_steps, step, steps);
}

double inverse_sqrt(const OptimConfig& config, std::int64_t step, std::int64_t) {
  const double warm_up = static_cast<double>(std::max<std::int64_t>(1, config.warmup_steps));
  return std::max(lowest(config), config.lr * std::sqrt(warm_up / static_cast<double>(step + 1)));
}

double warm_up_stable_decay(const OptimConfig& config, std::int64_t step, std::int64_t steps) {
  return fall_from(config, std::max(config.warmup_steps, steps - wsd_decay_steps(config, steps)), step, steps);
}

double constant(const OptimConfig& config, std::int64_t, std::int64_t) { return config.lr; }

constexpr LearningRateKind kLearningRates[] = {
    {"cosine", "half a cosine to the end of the run", cosine},
    {"linear", "a straight line to the end of the run", linear},
    {"inverse-sqrt", "lr times the square root of warmup_steps (at least 1) / step, counted from 1", inverse_sqrt},
    {"wsd", "stable, then linear decay over the last decay_steps, or decay_fraction of the steps",
     warm_up_stable_decay},
    {"constant", "no decay", constant},
};

}  // namespace

std::int64_t wsd_decay_steps(const OptimConfig& config, std::int64_t steps) {
  if (config.decay_steps > 0) return config.decay_steps;
  return std::llround(config.decay_fraction * static_cast<double>(steps));
}

std::span<const LearningRateKind> learning_rate_kinds() { return kLearningRates; }

std::string learning_rate_docs() {
  std::string text;
  for (const LearningRateKind& kind : kLearningRates)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", kind.name, kind.doc);
  return text;
}

double learning_rate(const OptimConfig& config, std::int64_t step, std::int64_t steps) {
  if (step < config.warmup_steps) {
    return config.lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  }
  const auto* const kind = std::ranges::find(kLearningRates, config.schedule, &LearningRateKind::name);
  MS_ASSERT(kind != std::end(kLearningRates), "no learning-rate schedule is called {}", config.schedule);
  return kind->rate(config, step, steps);
}

}  // namespace ms::optim
