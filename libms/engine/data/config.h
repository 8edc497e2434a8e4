// The [data] section: which token files a run trains on and validates with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "data/mixture.h"

namespace ms::data {

struct DataConfig {
  std::vector<std::string> train;
  std::vector<std::string> valid;
  double valid_fraction = 0.05;
  bool reset_attention = false;
  bool balance = true;
  double read_timeout_s = 300;
  std::int64_t loaders = 0;
};

inline constexpr Field<DataConfig> kDataFields[] = {
    {.key = "train",
     .member = &DataConfig::train,
     .doc =
         "Token files to train on, by prefix (without .bin and .idx); {path = \"PREFIX\", weight = 3} entries, or "
         "\"3 PREFIX\" for short, are blended by weight, entries without weights are shuffled together. With "
         "weight = [[0, 0.9], [10000, 0.1]], or \"0:0.9;10000:0.1 PREFIX\" for short, the weight is 0.9, and 0.1 once "
         "10000 steps are done; 0 leaves a source out meanwhile.",
     .weighted_paths = true},
    {.key = "valid",
     .member = &DataConfig::valid,
     .doc = "Token files to validate with, by prefix; when empty, a part of each training file is held out.",
     .weighted_paths = true},
    {.key = "valid_fraction",
     .member = &DataConfig::valid_fraction,
     .doc = "The last part of the tokens of each training file that is held out for validation when valid is empty; 0 "
            "for none.",
     .min = 0,
     .max = 0.5},
    {.key = "reset_attention",
     .member = &DataConfig::reset_attention,
     .doc = "A token attends only to tokens of its own document, and learned positions count from where that begins in "
            "the sample (rotary ones are relative). On the CPU, and on GPUs from H100 on."},
    {.key = "balance",
     .member = &DataConfig::balance,
     .doc = "With reset_attention, the samples of a step are divided among dp ranks and microbatches so that attention "
            "takes about as long on each, by the lengths of their documents. A step has the same samples either way."},
    {.key = "read_timeout",
     .member = &DataConfig::read_timeout_s,
     .doc = "How long a step may wait for its tokens before the storage is said to have failed.",
     .unit = Unit::seconds,
     .min = 1,
     .max = 7 * 86'400},
    {.key = "loaders",
     .member = &DataConfig::loaders,
     .doc =
         "Source loaders of a node, at most: threads of its loader that read the sources. There is one while it keeps "
         "up with the ranks, and more where it does not; which sources each owns follows from what reading them "
         "takes. They change no sample. 0: as many as the loader may use cores; storage that answers slowly may want "
         "more.",
     .min = 0,
     .max = 64},
};

// A source's weight once `step` steps are done.
struct SourceWeight {
  std::int64_t step = 0;
  double weight = 0;
  bool operator==(const SourceWeight&) const = default;
};

// One entry of train or valid.
struct DataSource {
  std::string prefix;
  std::vector<SourceWeight> weights;  // by step, from step 0; empty: it has none
};

// "PREFIX", "WEIGHT PREFIX" or "STEP:WEIGHT;STEP:WEIGHT PREFIX". Error("data.source", user) where there is no prefix,
// it ends in .bin or .idx, the steps do not grow from 0, a weight is neither 0 nor possible for Blend, or all are 0.
DataSource parse_source(std::string_view entry);

// Returns the weights of all sources, each of which has some, from every step on at which one changes.
// Error("data.weight", user): at some step all are 0, or there are more than Mixture::kMaxStages such steps.
std::vector<WeightStage> weight_stages(std::span<const DataSource> sources);

// The rules between the fields, added to the schema's problems where they are broken. Opens no file.
void validate(const DataConfig& config, ConfigSchema& schema);

}  // namespace ms::data
