// The keys of [mesh]: how the ranks of a run are divided.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace ms::mesh {

struct MeshConfig {
  std::int64_t dp = 1, dp_min = 1, dp_max = 0;
  std::int64_t pp = 1, tp = 1;
  std::int64_t chunks = 1;
  bool sequence_parallel = true;
  std::string schedule = "1f1b";
};

inline constexpr Field<MeshConfig> kMeshFields[] = {
    {.key = "dp",
     .member = &MeshConfig::dp,
     .doc =
         "Data-parallel replicas of the model. auto: as many as the ranks that the run is given make; with fewer "
         "replicas each takes more microbatches of the same train.global_batch. A run resumes with any other number.",
     .min = 1,
     .max = 1 << 24,
     .choices = {"auto"}},
    {.key = "dp_min",
     .member = &MeshConfig::dp_min,
     .doc = "The fewest replicas that auto, or --shrink of ms-driver, may choose.",
     .min = 1,
     .max = 1 << 24},
    {.key = "dp_max",
     .member = &MeshConfig::dp_max,
     .doc = "The most that they may choose; 0: as many as train.global_batch has microbatches.",
     .min = 0,
     .max = 1 << 24},
    {.key = "pp",
     .member = &MeshConfig::pp,
     .doc = "Pipeline stages: each holds some of the layers.",
     .min = 1,
     .max = 65536},
    {.key = "tp",
     .member = &MeshConfig::tp,
     .doc = "Ranks that share every layer (tensor parallel).",
     .min = 1,
     .max = 65536},
    {.key = "chunks",
     .member = &MeshConfig::chunks,
     .doc = "Virtual stages on each pipeline rank; above 1 the schedule is interleaved and pp must be above 1.",
     .min = 1,
     .max = 65536},
    {.key = "sequence_parallel",
     .member = &MeshConfig::sequence_parallel,
     .doc = "Split activations between the tensor-parallel GEMMs along the sequence; no effect where tp is 1."},
    {.key = "schedule",
     .member = &MeshConfig::schedule,
     .doc = "Pipeline schedule: the name of one, or the path of a schedule as CSV, ending in .csv."},
};

}  // namespace ms::mesh
