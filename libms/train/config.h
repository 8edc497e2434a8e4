// [train] and [run], and all sections together: the settings of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "data/config.h"
#include "mesh/config.h"
#include "nn/config.h"
#include "optim/config.h"

namespace ms::train {

struct TrainConfig {
  std::int64_t steps = 1000;
  std::int64_t global_batch = 8;
  std::int64_t microbatch = 1;
  std::int64_t seed = 1234;
  std::string dtype = "bf16";
  std::string recompute = "none";
  std::int64_t eval_every = 100;
  std::int64_t eval_samples = 64;
  std::int64_t log_every = 10;
};

inline constexpr Field<TrainConfig> kTrainFields[] = {
    {.key = "steps", .member = &TrainConfig::steps, .doc = "Optimizer steps of the run.", .min = 1, .max = 1e12},
    {.key = "global_batch",
     .member = &TrainConfig::global_batch,
     .doc = "Sequences of a step, over all of dp.",
     .min = 1,
     .max = 1e9},
    {.key = "microbatch",
     .member = &TrainConfig::microbatch,
     .doc = "Sequences that go through the model at once.",
     .min = 1,
     .max = 1e6},
    {.key = "seed",
     .member = &TrainConfig::seed,
     .doc = "Key of all random numbers: initial weights, order of samples, generated text.",
     .min = 0,
     .max = 9e15},
    {.key = "dtype",
     .member = &TrainConfig::dtype,
     .doc = "Type of parameters and activations; sums, norms, gradients and optimizer state are fp32 or better.",
     .choices = {"fp32", "bf16"}},
    {.key = "recompute",
     .member = &TrainConfig::recompute,
     .doc = "What the backward computes again instead of keeping it: none; selective: outputs of norms and of the "
            "activation; full: everything but each layer's input.",
     .choices = {"none", "selective", "full"}},
    {.key = "eval_every",
     .member = &TrainConfig::eval_every,
     .doc = "Steps between evaluations; the last step is always evaluated; 0 means never.",
     .min = 0,
     .max = 1e12},
    {.key = "eval_samples",
     .member = &TrainConfig::eval_samples,
     .doc = "Sequences of an evaluation, rounded up to whole global batches.",
     .min = 1,
     .max = 1e9},
    {.key = "log_every",
     .member = &TrainConfig::log_every,
     .doc = "Steps between lines in the log.",
     .min = 1,
     .max = 1e9},
};

struct RunConfig {
  std::string dir = "runs/default";
  double comm_timeout_s = 600;
  double peak_tflops = 0;
  std::int64_t sample_tokens = 0;
  double sample_temperature = 0.8;
};

inline constexpr Field<RunConfig> kRunFields[] = {
    {.key = "dir",
     .member = &RunConfig::dir,
     .doc = "Where the run writes config.toml, metrics.jsonl (that of the run before is kept as "
            "metrics.jsonl.previous) and "
            "verdict.json; relative to the current directory, as all paths are."},
    {.key = "comm_timeout",
     .member = &RunConfig::comm_timeout_s,
     .doc = "How long an operation may wait for its peers before the run stops and names them.",
     .unit = Unit::seconds,
     .min = 0.1,
     .max = 1e6},
    {.key = "peak_tflops",
     .member = &RunConfig::peak_tflops,
     .doc = "Peak of one rank's device in TFLOP/s, for the MFU in metrics.jsonl; 0: not known, no MFU.",
     .min = 0,
     .max = 1e9},
    {.key = "sample_tokens",
     .member = &RunConfig::sample_tokens,
     .doc = "Tokens of text to generate when training ends (byte tokenizer).",
     .min = 0,
     .max = 1e6},
    {.key = "sample_temperature",
     .member = &RunConfig::sample_temperature,
     .doc = "Sharpness of generated text; 0 takes the likeliest token.",
     .min = 0,
     .max = 100},
};

struct Settings {
  nn::ModelConfig model;
  mesh::MeshConfig mesh;
  TrainConfig train;
  optim::OptimConfig optim;
  data::DataConfig data;
  RunConfig run;
};

// Binds every section; `settings` outlives the schema.
void bind(ConfigSchema& schema, Settings& settings);

// A configuration file with assignments ("train.steps=10") on top, checked: fields, and the rules between them. Throws
// Error("config.invalid", user) with every problem. Opens no data file.
struct Loaded {
  Settings settings;
  std::string resolved;  // as TOML, every key, with who set it
};
Loaded load(const std::string& path, const std::vector<std::string>& assignments);

}  // namespace ms::train
