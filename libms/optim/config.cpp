#include "optim/config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ms::optim {

double learning_rate(const OptimConfig& config, std::int64_t step, std::int64_t steps) {
  if (step < config.warmup_steps) {
    return config.lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps);
  }
  const double low = config.lr * config.min_lr_ratio;
  // How much of the decay is done, 0 at its first step and 1 at the last step of the run.
  auto progress = [&](std::int64_t begin) {
    const auto length = static_cast<double>(std::max<std::int64_t>(1, steps - 1 - begin));
    return std::clamp(static_cast<double>(step - begin) / length, 0.0, 1.0);
  };
  if (config.schedule == "cosine") {
    return low + (config.lr - low) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress(config.warmup_steps)));
  }
  if (config.schedule == "wsd") {
    const auto decay = static_cast<std::int64_t>(std::llround(config.decay_fraction * static_cast<double>(steps)));
    const std::int64_t begin = std::max(config.warmup_steps, steps - decay);
    return step < begin ? config.lr : config.lr + (low - config.lr) * progress(begin);
  }
  return config.lr;
}

}  // namespace ms::optim
