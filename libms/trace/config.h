// The keys of [trace]: what each rank writes down about what it does. ms-tracepp(1) reads it.
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
         "Every rank writes what it does, and when, to a file that ms-tracepp(1) reads: which rank is slow, which one "
         "hangs, where the time goes."},
    {.key = "dir",
     .member = &TraceConfig::dir,
     .doc = "Where the files rank-00000.mst and so on are written; those of the run before are kept as "
            "rank-00000.mst.previous. Best on a disk of the node's own. Empty: the directory trace in run.dir."},
    {.key = "level",
     .member = &TraceConfig::level,
     .doc = "How much is written: sections: computations of the schedule, what moves between stages and over dp, and "
            "what the host waits for; messages: also the messages of tensor parallelism; ops: also every single "
            "operation of the device, which costs time.",
     .choices = {"sections", "messages", "ops"}},
    {.key = "max_bytes",
     .member = &TraceConfig::max_bytes,
     .doc = "Largest size of a rank's file. The newest steps are kept whole, as many as fit; of older ones the sums of "
            "each step, in an eighth of the file.",
     .unit = Unit::bytes,
     .min = 1 << 20,
     .max = 1e12},
    {.key = "flush",
     .member = &TraceConfig::flush_s,
     .doc = "Time between two writes to the file: what a rank that is killed did since then is lost.",
     .unit = Unit::seconds,
     .min = 0.01,
     .max = 3600},
    {.key = "probe_every",
     .member = &TraceConfig::probe_every_s,
     .doc = "About how often nodes compare their clocks, so that their traces can be put on one time axis; 0: never. "
            "Runs on one node do not need to.",
     .unit = Unit::seconds,
     .min = 0,
     .max = 1e6},
};

}  // namespace ms::trace
