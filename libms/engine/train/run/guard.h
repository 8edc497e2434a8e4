// Guards the model against steps that would harm it: gradients that are NaN or infinite, and spikes. Pure.
//
// It goes by the global gradient norm, which the step's all-reduce brings to every rank, so that all ranks decide the
// same without a collective of their own. The loss needs no test of its own: the backward begins with the softmax of
// the same logits, and a loss that is NaN gives gradients that are.
//
// The device itself leaves out the update, because the host issues a step before it knows the norm of the step before:
// what is not finite always, what is above limit() as well. The limit of a step comes from the norms up to the step
// two before it, which the host knows by then whatever the pace, so the same run takes the same decisions again.
#pragma once

#include <array>
#include <deque>
#include <limits>
#include <optional>
#include <string>

#include "base/error.h"
#include "train/guard_config.h"

namespace ms::train {

// A step with neither is in order.
struct Ruling {
  std::string warning;
  std::string rollback;       // why the run has to go back; empty: it has not
  std::optional<Error> stop;  // Error("train.diverged" or "train.spike", user)
};

class Guard {
 public:
  explicit Guard(const GuardConfig& config) : config_(config) {}

  // The gradient norm above which the device leaves out the update of the step that is issued next, `step` from 0.
  float limit(std::int64_t step) const;
  // Judges a step by what it returned. Once for every step, in order. No loss: the step has no targets, and its norm,
  // 0 or that of the router's losses, says nothing about the norms of others.
  Ruling judge(std::int64_t step, std::optional<double> loss, double grad_norm);

 private:
  float spike_above() const;

  GuardConfig config_;
  std::deque<double> norms_;  // of the newest updates with targets, at most config_.window
  // By step modulo 2: a norm above is a spike.
  std::array<float, 2> spike_above_{std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
  std::int64_t skips_ = 0;  // on end
};

}  // namespace ms::train
