// The keys of [trace], what each rank records about its execution for ms-tracepp(1), and of [metrics], what rank 0
// writes about every step for people and plots.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace ms::trace {

struct TraceConfig {
  bool enabled = true;
  std::string dir;
  std::string level = "messages";
  std::int64_t max_bytes = 64 << 20;
  double flush_s = 1;
  double probe_every_s = 120;
};

inline constexpr Field<TraceConfig> kTraceFields[] = {
    {.key = "enabled",
     .member = &TraceConfig::enabled,
     .doc =
         "Every rank records its events in a trace file. ms-tracepp(1) reads the files and reports slow ranks, hangs, "
         "and where the time goes."},
    {.key = "dir",
     .member = &TraceConfig::dir,
     .doc = "Directory of the files rank-00000.mst and so on; those of the previous run are kept as "
            "rank-00000.mst.previous. Best on a local disk of the node. Empty: the directory trace in run.dir."},
    {.key = "level",
     .member = &TraceConfig::level,
     .doc =
         "Which events are recorded: sections: computations of the schedule, communication over pp and dp, and waits "
         "of the host; messages: also communication over tp; ops: also every single operation of the device, which "
         "costs time.",
     .choices = {"sections", "messages", "ops"}},
    {.key = "max_bytes",
     .member = &TraceConfig::max_bytes,
     .doc = "Largest size of a rank's file. As many of the newest steps as fit are kept in full; of older steps only "
            "their sums, in an eighth of the file.",
     .unit = Unit::bytes,
     .min = 1 << 20,
     .max = 1e12},
    {.key = "flush",
     .member = &TraceConfig::flush_s,
     .doc = "Time between two writes to the file: a rank that is killed loses its events since the last write.",
     .unit = Unit::seconds,
     .min = 0.01,
     .max = 3600},
    {.key = "probe_every",
     .member = &TraceConfig::probe_every_s,
     .doc = "About how often nodes compare their clocks, so that their traces share one time axis; 0: never. "
            "A run on one node does not need it.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 1e6},
};

struct MetricsConfig {
  bool tensorboard = false;
  std::int64_t grad_norms_every = 0;
};

inline constexpr Field<MetricsConfig> kMetricsFields[] = {
    {.key = "tensorboard",
     .member = &MetricsConfig::tensorboard,
     .doc = "The numbers of metrics.jsonl are also written as TensorBoard event files, in the directory tensorboard in "
            "run.dir: 'tensorboard --logdir' with run.dir, or with what all runs are in, shows them. The loss is "
            "train/loss, and a number in an object has its name: mfu/causal."},
    {.key = "grad_norms_every",
     .member = &MetricsConfig::grad_norms_every,
     .doc = "Steps between gradient norms by module of the model (embed, layers.0.attn, layers.0.mlp, ...), before "
            "clipping, as grad_norms in metrics.jsonl; 0: none. Such a step reads the gradients once more.",
     .min = 0,
     .max = 1e12},
};

}  // namespace ms::trace
