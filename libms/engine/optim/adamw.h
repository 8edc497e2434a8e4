// AdamW's update, and what other optimizers with Adam's two moments share with it.
#pragma once

#include <array>
#include <cmath>

#include "optim/optimizer.h"
#include "tensor/ops.h"

namespace ms::optim {

inline constexpr std::array<std::string_view, 2> kMoments{"exp_avg", "exp_avg_sq"};

// Returns an op of Adam's family with those of its fields that follow from `update`.
template <class Op>
Op adam_op(const Update& update) {
  const OptimConfig& config = update.config;
  const auto correction = [&](double beta) {
    return static_cast<float>(1.0 - std::pow(beta, static_cast<double>(update.step + 1)));
  };
  Op op;
  op.m = update.states[0];
  op.v = update.states[1];
  op.factor = update.factor;
  op.eps = static_cast<float>(config.eps);
  op.weight_decay = update.weight_decay;
  op.correction1 = correction(config.beta1);
  op.correction2 = correction(config.beta2);
  if constexpr (requires { op.param; }) {
    op.param = update.param;
    op.master = update.master;
    op.lr = update.lr;
  }
  if constexpr (requires { op.seed; }) op.seed = static_cast<std::uint32_t>(update.step);
  if constexpr (requires { op.grad; }) {
    op.grad = update.grad;
    op.beta1 = static_cast<float>(config.beta1);
    op.beta2 = static_cast<float>(config.beta2);
  }
  return op;
}

void issue_adamw(tensor::Stream& stream, const Update& update);

}  // namespace ms::optim
