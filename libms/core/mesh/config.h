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
     .doc = "Data-parallel replicas of the model. auto: as many as fit the number of ranks. With fewer replicas each "
            "processes more microbatches of the same train.global_batch. A run can resume with another number.",
     .min = 1,
     .max = 1 << 24,
     .choices = {"auto"}},
    {.key = "dp_min",
     .member = &MeshConfig::dp_min,
     .doc = "Minimum number of replicas for auto, and for --shrink of ms-driver.",
     .min = 1,
     .max = 1 << 24},
    {.key = "dp_max",
     .member = &MeshConfig::dp_max,
     .doc = "Maximum number of replicas for auto, and for --shrink of ms-driver; 0: the number of microbatches in "
            "train.global_batch.",
     .min = 0,
     .max = 1 << 24},
    {.key = "pp",
     .member = &MeshConfig::pp,
     .doc = "Pipeline stages, each with some of the layers.",
     .min = 1,
     .max = 65536},
    {.key = "tp",
     .member = &MeshConfig::tp,
     .doc = "Tensor-parallel ranks, which share every layer.",
     .min = 1,
     .max = 65536},
    {.key = "chunks",
     .member = &MeshConfig::chunks,
     .doc = "Virtual stages per pipeline rank. Above 1 the schedule is interleaved, and pp must be above 1.",
     .min = 1,
     .max = 65536},
    {.key = "sequence_parallel",
     .member = &MeshConfig::sequence_parallel,
     .doc = "Sequence parallelism: shard activations between the tensor-parallel GEMMs along the sequence. No effect "
            "if tp is 1."},
    {.key = "schedule",
     .member = &MeshConfig::schedule,
     .doc = "Pipeline schedule: a name, or the path of a CSV file with a schedule, ending in .csv."},
};

}  // namespace ms::mesh
