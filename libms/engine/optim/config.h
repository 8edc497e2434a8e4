// [optim]: the optimizer, its learning-rate schedule and how its state is sharded over dp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"

namespace ms::optim {

struct OptimConfig {
  std::string name = "adamw";
  double lr = 3e-4;
  double min_lr_ratio = 0.1;
  std::string schedule = "cosine";
  std::int64_t warmup_steps = 0;
  double decay_fraction = 0.2;
  std::int64_t decay_steps = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::vector<std::string> groups;
  double clip = 1.0;
  std::int64_t zero = 1;
  std::string main_grads_dtype = "fp32";
};

inline constexpr Field<OptimConfig> kOptimFields[] = {
    {.key = "name", .member = &OptimConfig::name, .doc = "The optimizer."},  // the choices are the rows of optimizer.h
    {.key = "lr", .member = &OptimConfig::lr, .doc = "Peak learning rate.", .min = 0, .max = 1e3},
    {.key = "min_lr_ratio",
     .member = &OptimConfig::min_lr_ratio,
     .doc = "Learning rate at the end of the schedule, as a fraction of the peak.",
     .min = 0,
     .max = 1},
    {.key = "schedule",
     .member = &OptimConfig::schedule,
     .doc = "Decay of the learning rate after the warm-up, to min_lr_ratio."},  // choices: rows of learning_rate.h
    {.key = "warmup_steps",
     .member = &OptimConfig::warmup_steps,
     .doc = "Steps of linear warm-up to the peak learning rate.",
     .min = 0,
     .max = 1e12},
    {.key = "decay_fraction",
     .member = &OptimConfig::decay_fraction,
     .doc = "Fraction of all steps in which wsd decays.",
     .min = 0,
     .max = 1},
    {.key = "decay_steps",
     .member = &OptimConfig::decay_steps,
     .doc = "Steps at the end of the run in which wsd decays; 0: see decay_fraction.",
     .min = 0,
     .max = 1e12},
    {.key = "beta1",
     .member = &OptimConfig::beta1,
     .doc = "Exponential decay rate of the first moment.",
     .min = 0,
     .max = 0.999999},
    {.key = "beta2",
     .member = &OptimConfig::beta2,
     .doc = "Exponential decay rate of the second moment.",
     .min = 0,
     .max = 0.999999},
    {.key = "eps",
     .member = &OptimConfig::eps,
     .doc = "Epsilon added to the root of the second moment.",
     .min = 0,
     .max = 1},
    {.key = "weight_decay",
     .member = &OptimConfig::weight_decay,
     .doc = "Decoupled weight decay of matrices; norms and biases have none.",
     .min = 0,
     .max = 10},
    {.key = "groups",
     .member = &OptimConfig::groups,
     .doc = "Parameter groups with their own learning rate or weight decay: \"PATTERN lr=X weight_decay=Y\", with one "
            "of the two or both. lr multiplies the schedule's rate. A pattern matches names as in checkpoints; * "
            "matches any text (\"embed.*\", \"*.bias\"). The first match counts."},
    {.key = "clip",
     .member = &OptimConfig::clip,
     .doc = "Maximum global gradient norm; 0: no clipping.",
     .min = 0,
     .max = 1e12},
    {.key = "zero",
     .member = &OptimConfig::zero,
     .doc = "ZeRO stage, the state sharded over dp. 0: none; 1: optimizer state, gradients are reduced once per step; "
            "2: gradients too, reduced after every microbatch.",
     .min = 0,
     .max = 2},
    {.key = "main_grads_dtype",
     .member = &OptimConfig::main_grads_dtype,
     .doc = "Data type in which gradients of microbatches are accumulated and reduced over dp. bf16 halves their "
            "memory and traffic. Each addition then rounds to 8 bits, so that over many microbatches small "
            "contributions are lost. As --grad-reduce-in-bf16 of Megatron-LM. Only with train.dtype = \"bf16\".",
     .choices = {"fp32", "bf16"}},
};

}  // namespace ms::optim
