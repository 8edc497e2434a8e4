// The registry of learning-rate schedules that [optim] schedule can name: rows in learning_rate.cpp. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "optim/config.h"

namespace ms::optim {

// A row. A schedule begins when the warm-up is over.
struct LearningRateKind {
  std::string_view name;
  std::string_view doc;  // a clause for ms.toml(5)
  // The rate of a step (from 0) out of `steps`, from lr down to no less than lr * min_lr_ratio.
  double (*rate)(const OptimConfig& config, std::int64_t step, std::int64_t steps);
};

std::span<const LearningRateKind> learning_rate_kinds();
// The documentation of all rows: "cosine: ...; linear: ...".
std::string learning_rate_docs();

// Steps at the end of a run of `steps` over which wsd decays, as far as the warm-up leaves them to it.
std::int64_t wsd_decay_steps(const OptimConfig& config, std::int64_t steps);

// The learning rate of a step (from 0) out of `steps`, by the configured schedule.
double learning_rate(const OptimConfig& config, std::int64_t step, std::int64_t steps);

}  // namespace ms::optim
