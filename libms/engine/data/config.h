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
     .doc = "Token files to train on, by prefix (without .bin and .idx). Entries with a weight, {path = \"PREFIX\", "
            "weight = 3} or \"3 PREFIX\" for short, are blended by weight; entries without weights are shuffled "
            "together. A weight can change: with weight = [[0, 0.9], [10000, 0.1]], or \"0:0.9;10000:0.1 PREFIX\" for "
            "short, it is 0.9 for the first 10000 steps, then 0.1. Weight 0 leaves the source out. A prefix such as "
            "s3://BUCKET/KEY is read from an object store and kept in a cache on each node; see ms-data(1).",
     .weighted_paths = true},
    {.key = "valid",
     .member = &DataConfig::valid,
     .doc = "Token files for validation, by prefix. Empty: a part of each training file is held out.",
     .weighted_paths = true},
    {"valid_fraction", &DataConfig::valid_fraction,
     "Fraction of each training file, at its end, that is held out for validation if valid is empty; 0: none.",
     Unit::none, 0, 0.5},
    {"reset_attention", &DataConfig::reset_attention,
     "Tokens attend only within their own document, and learned positions restart at each document in the sample "
     "(rotary positions are relative). On CPUs, and on GPUs from H100 on."},
    {"balance", &DataConfig::balance,
     "With reset_attention, distribute the samples of a step over dp ranks and microbatches so that each takes about "
     "equal time in attention, by the lengths of documents. The step trains on the same samples either way."},
    {"read_timeout", &DataConfig::read_timeout_s,
     "Maximum time that a step waits for its tokens before the run ends with a storage failure.", Unit::seconds, 1,
     7 * 86'400},
    {"loaders", &DataConfig::loaders,
     "Maximum number of source loaders on a node: threads of its loader that read the sources. It starts with one and "
     "adds more if the ranks wait for data; sources are assigned by the measured cost of reading them. Samples do not "
     "depend on it. 0: as many as the loader's cores. Storage with high latency may need more.",
     Unit::none, 0, 64},
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
