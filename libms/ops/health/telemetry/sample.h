// One look at a node's counters and sensors, as ms-diag collect keeps it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "health/policy.h"

namespace ms::health {

using Facts = std::map<std::string, std::string>;  // of a device: what does not change as long as it is the same one

struct SampleValue {
  std::string device = {};  // as in series.h
  std::string column = {};
  float value = 0;
};

struct Sample {
  double wall_s = 0;
  std::vector<SampleValue> values = {};  // that could be read, each device and column once
  std::map<std::string, Facts> facts = {};
  std::vector<std::string> missing = {};  // "gpus: nvmlInit_v2: Driver Not Loaded": nothing of these is in it
};

// Reads it, in processes of their own that are cut when they hang: what is not there by then is missing. GPUs are read
// through NVML, if it is there.
Sample take_sample(const Policy& policy, double deadline_s);

}  // namespace ms::health
