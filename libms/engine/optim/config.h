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
     .doc = "The schedule ends at this part of the peak learning rate.",
     .min = 0,
     .max = 1},
    {.key = "schedule",
     .member = &OptimConfig::schedule,
     .doc = "How the learning rate falls after the warm-up, to min_lr_ratio."},  // choices: rows of learning_rate.h
    {.key = "warmup_steps",
     .member = &OptimConfig::warmup_steps,
     .doc = "Steps of linear growth to the peak learning rate.",
     .min = 0,
     .max = 1e12},
    {.key = "decay_fraction",
     .member = &OptimConfig::decay_fraction,
     .doc = "Part of all steps over which wsd decays.",
     .min = 0,
     .max = 1},
    {.key = "decay_steps",
     .member = &OptimConfig::decay_steps,
     .doc = "Steps over which wsd decays, at the end of the run; 0: decay_fraction of them.",
     .min = 0,
     .max = 1e12},
    {.key = "beta1", .member = &OptimConfig::beta1, .doc = "Decay of the first moment.", .min = 0, .max = 0.999999},
    {.key = "beta2", .member = &OptimConfig::beta2, .doc = "Decay of the second moment.", .min = 0, .max = 0.999999},
    {.key = "eps", .member = &OptimConfig::eps, .doc = "Added to the root of the second moment.", .min = 0, .max = 1},
    {.key = "weight_decay",
     .member = &OptimConfig::weight_decay,
     .doc = "Decoupled weight decay of matrices; norms and biases have none.",
     .min = 0,
     .max = 10},
    {.key = "groups",
     .member = &OptimConfig::groups,
     .doc = "Parameters with a learning rate or weight decay of their own: \"PATTERN lr=X weight_decay=Y\", one of the "
            "two or both. lr is a factor on the schedule's rate. A pattern is of names as in checkpoints, * stands for "
            "any text (\"embed.*\", \"*.bias\"); the first that fits a parameter counts."},
    {.key = "clip",
     .member = &OptimConfig::clip,
     .doc = "Largest global gradient norm; 0 switches clipping off.",
     .min = 0,
     .max = 1e12},
    {.key = "zero",
     .member = &OptimConfig::zero,
     .doc =
         "What is sharded over dp: 0 nothing; 1 the optimizer's state, gradients reduced once a step; 2 the gradients "
         "too, reduced after every microbatch.",
     .min = 0,
     .max = 2},
    {.key = "main_grads_dtype",
     .member = &OptimConfig::main_grads_dtype,
     .doc = "Type in which the gradients of a step's microbatches add up and are reduced over dp. bf16 halves their "
            "memory and traffic; each addition then rounds to 8 bits, so that many microbatches lose what is small "
            "beside the sum. Megatron-LM has --grad-reduce-in-bf16. Only with train.dtype = \"bf16\".",
     .choices = {"fp32", "bf16"}},
};

}  // namespace ms::optim
