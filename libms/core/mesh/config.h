// The keys of [mesh]: how the ranks of a run are divided.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace ms::mesh {

struct MeshConfig {
  std::int64_t dp = 1, dp_min = 1, dp_max = 0;
  std::int64_t pp = 1, tp = 1, cp = 1, ep = 1, expert_tp = 0;
  std::string cp_type = "auto";
  std::int64_t chunks = 1;
  std::int64_t first_layers = 0, last_layers = 0;
  bool sequence_parallel = true;
  std::string schedule = "1f1b";

  std::int64_t replica_ranks() const { return pp * tp * cp; }
  std::int64_t ranks() const { return dp * replica_ranks(); }
  // Whether tp is folded into the order of experts' ranks (Mesh::folds_tp); the ranks of tp that share an expert; and
  // the ranks, without cp, that mesh.ep divides.
  bool folds_tp() const { return expert_tp != 0 && expert_tp < tp; }
  std::int64_t expert_shards() const { return folds_tp() ? 1 : tp; }
  std::int64_t expert_ranks() const { return dp * tp / expert_shards(); }
};

inline constexpr Field<MeshConfig> kMeshFields[] = {
    {.key = "dp",
     .member = &MeshConfig::dp,
     .doc = "Data-parallel replicas of the model. auto: as many as fit the number of ranks. With fewer replicas each "
            "processes more microbatches of the same train.global_batch. A run can resume with another number.",
     .min = 1,
     .max = 1 << 24,
     .choices = {"auto"}},
    {"dp_min", &MeshConfig::dp_min, "Minimum number of replicas for auto, and for --shrink of ms-driver.", Unit::none,
     1, 1 << 24},
    {"dp_max", &MeshConfig::dp_max,
     "Maximum number of replicas for auto, and for --shrink of ms-driver; 0: the number of microbatches in "
     "train.global_batch.",
     Unit::none, 0, 1 << 24},
    {"pp", &MeshConfig::pp, "Pipeline stages, each with some of the layers.", Unit::none, 1, 65536},
    {"tp", &MeshConfig::tp, "Tensor-parallel ranks, which share every layer.", Unit::none, 1, 65536},
    {"cp", &MeshConfig::cp,
     "Context-parallel ranks, which share every sequence: each has 1 / cp of its tokens, in two pieces whose causal "
     "attention together is as much work as that of any other rank. They hold the same parameters, and so count as "
     "data-parallel ranks for gradients and optim.zero. 2 x cp divides model.seq.",
     Unit::none, 1, 65536},
    {.key = "cp_type",
     .member = &MeshConfig::cp_type,
     .doc =
         "How attention sees the tokens of other context-parallel ranks. all-gather: every rank gathers the keys and "
         "values of all, and attends with its own queries; not on GPUs. all-to-all: ranks exchange tokens for heads, "
         "and attend with their heads to whole sequences; cp divides the key-value heads of a tp rank. ring: each rank "
         "passes keys and values on to the next while it attends to them; a rank holds those of two ranks at a time, "
         "not of all; not on GPUs. auto: all-gather or all-to-all, if both are possible what moves fewer bytes. With "
         "these two, the forward has the bits of one rank on a CPU, and gradients are summed in another order; with "
         "ring, attention is, too.",
     .choices = {"auto", "all-gather", "all-to-all", "ring"}},
    {"ep", &MeshConfig::ep,
     "Expert-parallel ranks, which share the experts of every layer (model.experts). They are neighbors on dp, so ep "
     "divides dp; with expert_tp = 1 they are neighbors on tp and dp, so ep divides dp x tp. What is not an expert is "
     "replicated over them, or sharded over tp. Each of them computes its experts for the tokens of all "
     "(train.moe_dispatch).",
     Unit::none, 1, 65536},
    {"expert_tp", &MeshConfig::expert_tp,
     "Tensor-parallel ranks that share each expert; 0: tp. 1: a rank of tp holds whole experts, other ones than its "
     "neighbors on tp, and sends the rows of its share of the tokens to the holders of their experts, without a gather "
     "within tp; mesh.ep then divides mesh.tp or is a multiple of it. Values other than 0, 1 and mesh.tp are refused.",
     Unit::none, 0, 65536},
    {"chunks", &MeshConfig::chunks,
     "Virtual stages per pipeline rank. Above 1 the schedule is interleaved, and pp must be above 1.", Unit::none, 1,
     65536},
    {"first_layers", &MeshConfig::first_layers,
     "Layers of the first virtual stage, which also embeds tokens. 0: as many as the others, which share what is left "
     "equally.",
     Unit::none, 0, 1 << 20},
    {"last_layers", &MeshConfig::last_layers,
     "Layers of the last virtual stage, which also computes logits and loss. One or two fewer than in the others even "
     "out the work where the vocabulary is large. 0: as many as the others.",
     Unit::none, 0, 1 << 20},
    {"sequence_parallel", &MeshConfig::sequence_parallel,
     "Sequence parallelism: shard activations between the tensor-parallel GEMMs along the sequence. No effect if tp is "
     "1."},
    {"schedule", &MeshConfig::schedule,
     "Pipeline schedule: a name, or the path of a CSV file with a schedule, ending in .csv."},
};

}  // namespace ms::mesh
