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
  double muon_momentum = 0.95;
  std::string muon_scale = "match-rms-adamw";
  std::int64_t zero = 1;
  std::int64_t prefetch = 1;
  std::int64_t shard_group = 0;
  std::string main_grads_dtype = "fp32", moments_dtype = "fp32";
};

inline constexpr Field<OptimConfig> kOptimFields[] = {
    {"name", &OptimConfig::name, "The optimizer."},  // the choices are the rows of optimizer.h
    {"lr", &OptimConfig::lr, "Peak learning rate.", Unit::none, 0, 1e3},
    {"min_lr_ratio", &OptimConfig::min_lr_ratio, "Learning rate at the end of the schedule, as a fraction of the peak.",
     Unit::none, 0, 1},
    {"schedule", &OptimConfig::schedule,
     "Decay of the learning rate after the warm-up, to min_lr_ratio."},  // choices: rows of learning_rate.h
    {"warmup_steps", &OptimConfig::warmup_steps, "Steps of linear warm-up to the peak learning rate.", Unit::none, 0,
     1e12},
    {"decay_fraction", &OptimConfig::decay_fraction, "Fraction of all steps in which wsd decays.", Unit::none, 0, 1},
    {"decay_steps", &OptimConfig::decay_steps,
     "Steps at the end of the run in which wsd decays; 0: see decay_fraction.", Unit::none, 0, 1e12},
    {"beta1", &OptimConfig::beta1, "Exponential decay rate of the first moment.", Unit::none, 0, 0.999999},
    {"beta2", &OptimConfig::beta2, "Exponential decay rate of the second moment.", Unit::none, 0, 0.999999},
    {"eps", &OptimConfig::eps, "Epsilon added to the root of the second moment.", Unit::none, 0, 1},
    {"weight_decay", &OptimConfig::weight_decay, "Decoupled weight decay of matrices; norms and biases have none.",
     Unit::none, 0, 10},
    {"groups", &OptimConfig::groups,
     "Parameter groups with their own learning rate or weight decay: \"PATTERN lr=X weight_decay=Y\", with one of the "
     "two or both. lr multiplies the schedule's rate. A pattern matches names as in checkpoints; * matches any text "
     "(\"embed.*\", \"*.bias\"). The first match counts."},
    {"clip", &OptimConfig::clip, "Maximum global gradient norm; 0: no clipping.", Unit::none, 0, 1e12},
    {"muon_momentum", &OptimConfig::muon_momentum, "Momentum of muon, in Nesterov's form.", Unit::none, 0, 0.999999},
    {.key = "muon_scale",
     .member = &OptimConfig::muon_scale,
     .doc = "What muon multiplies the learning rate of a matrix of m x n by, as adjust_lr_fn of torch.optim.Muon. "
            "match-rms-adamw: 0.2 sqrt(max(m, n)), so that elements change as much as under adamw and its learning "
            "rate and weight decay fit; original: sqrt(max(1, m / n)), for learning rates near 0.02, with a group that "
            "lowers those of all other parameters.",
     .choices = {"match-rms-adamw", "original"}},
    {"zero", &OptimConfig::zero,
     "ZeRO stage, the state sharded over dp. 0: none; 1: optimizer state, gradients are reduced once per step; 2: "
     "gradients too, reduced after every microbatch; 3: parameters too. Stage 3 gathers the parameters of a span, one "
     "layer or as many as overlap.dp_message has room for, before each use, and frees them behind it; the gradients "
     "of a span are reduced as soon as its backward is done. It moves the parameters twice for each microbatch where "
     "stages 1 and 2 move them once for each step. Its results have the bits of stage 2. Not with train.fp8.",
     Unit::none, 0, 3},
    {"prefetch", &OptimConfig::prefetch,
     "Spans of parameters that optim.zero = 3 gathers ahead of their use. Each takes the memory of a span. 0: a gather "
     "begins where its parameters are needed. With as many as a rank has, parameters stay from the forward to the "
     "backward and are gathered once for each step.",
     Unit::none, 0, 1 << 20},
    {"shard_group", &OptimConfig::shard_group,
     "Data-parallel ranks (mesh.dp x mesh.cp) that share a copy of what optim.zero shards; 0: all. Each such shard "
     "group of neighbors has all of it, as with HSDP of PyTorch: parameters are gathered within a group, gradients are "
     "reduce-scattered within it, and then one shard group-th of them is all-reduced across groups, once per step. "
     "A group that lies within a node keeps most of the traffic there. It divides mesh.dp x mesh.cp, and is a multiple "
     "or "
     "a divisor of mesh.ep, and of mesh.cp. Not with mesh.expert_tp = 1. Experts are sharded over the ranks of a "
     "group that hold the same "
     "ones.",
     Unit::none, 0, 1 << 24},
    {.key = "main_grads_dtype",
     .member = &OptimConfig::main_grads_dtype,
     .doc = "Data type in which gradients of microbatches are accumulated and reduced over dp. bf16 halves their "
            "memory and traffic. Each addition then rounds to 8 bits, so that over many microbatches small "
            "contributions are lost. As --grad-reduce-in-bf16 of Megatron-LM. Only with train.dtype = \"bf16\".",
     .choices = {"fp32", "bf16"}},
    {.key = "moments_dtype",
     .member = &OptimConfig::moments_dtype,
     .doc = "Data type in which adamw keeps its two moments. bf16 takes 4 bytes less for each parameter. An update "
            "computes in fp32 and rounds moments up or down by chance (stochastic rounding), in the same way in every "
            "layout. A checkpoint has the type of its run, and a run with another type resumes from it. Only with "
            "name = \"adamw\".",
     .choices = {"fp32", "bf16"}},
};

}  // namespace ms::optim
