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
    {"enabled", &TraceConfig::enabled,
     "Record the events of every rank in a trace file. ms-tracepp(1) reads these files and reports slow ranks, hangs, "
     "and where the time goes."},
    {"dir", &TraceConfig::dir,
     "Directory of the files rank-00000.mst, ...; those of the previous run are kept as rank-00000.mst.previous. "
     "Preferably on a local disk of the node. Empty: the directory trace in run.dir."},
    {.key = "level",
     .member = &TraceConfig::level,
     .doc = "Level of detail. sections: computations of the schedule, communication over pp and dp, and waits of the "
            "host; messages: also communication over tp; ops: also every operation of the device, which costs time.",
     .choices = {"sections", "messages", "ops"}},
    {"max_bytes", &TraceConfig::max_bytes,
     "Maximum size of a rank's file. The newest steps are kept in full, as many as fit; older steps are kept as sums, "
     "in an eighth of the file.",
     Unit::bytes, 1 << 20, 1e12},
    {"flush", &TraceConfig::flush_s,
     "Interval of writes to the file. A rank that is killed loses its events since the last write.", Unit::seconds,
     0.01, 3600},
    {"probe_every", &TraceConfig::probe_every_s,
     "Approximate interval at which nodes compare their clocks, to put their traces on one time axis; 0: never. Not "
     "needed for a run on one node.",
     Unit::seconds, 0, 1e6},
};

struct MetricsConfig {
  bool tensorboard = false;
  std::int64_t grad_norms_every = 0;
  std::int64_t expert_load_every = 10;
};

inline constexpr Field<MetricsConfig> kMetricsFields[] = {
    {"tensorboard", &MetricsConfig::tensorboard,
     "Also write metrics.jsonl as TensorBoard event files, in the directory tensorboard in run.dir. View them with "
     "'tensorboard --logdir' and run.dir, or the parent directory of several runs. The loss is train/loss; a number in "
     "an object has the names of both, as mfu/causal."},
    {"grad_norms_every", &MetricsConfig::grad_norms_every,
     "Steps between gradient norms by module of the model (embed, layers.0.attn, layers.0.mlp, ...), before clipping, "
     "as grad_norms in metrics.jsonl; 0: none. Such a step reads the gradients once more.",
     Unit::none, 0, 1e12},
    {"expert_load_every", &MetricsConfig::expert_load_every,
     "Steps between loads of experts, as expert_load in metrics.jsonl; 0: none. The log warns of experts that tokens "
     "hardly choose.",
     Unit::none, 0, 1e12},
};

}  // namespace ms::trace
