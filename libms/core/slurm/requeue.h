// Requeues a job without the nodes that hurt it: holds it, extends its exclude list, releases it. ms-diag requeue and
// job scripts call it, as the job's owner, from outside or from inside the very job: then the caller ignores SIGTERM
// and has until KillWait. The job is never left held: whatever fails between, it is released, and the failure reported.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "slurm/commands.h"

namespace ms::slurm {

struct RequeueOptions {
  // Those of these nodes that do not answer; empty function: all do. A job that is requeued while one of its nodes does
  // not answer and Slurm has not seen that yet can never start again if it is --exclusive (BadConstraints, 22.05), so
  // the requeue waits, at most silent_s: until they answer, or Slurm has seen it and requeues the job itself.
  std::function<std::vector<std::string>(const std::string& hostlist)> silent = {};
  std::function<void(const std::string&)> say = {};
  double silent_s = 360;
  bool start_now = false;  // in seconds, not after Slurm's whole requeue delay; impossible from inside the job
  double settle_s = 5;     // for each step, its repetitions and Slurm's own doings included
};

// Waits for nodes that do not answer as long as a cluster of this configuration takes to act on one that is gone. Both
// outlive it.
RequeueOptions requeue_without_silence(const Commands& slurm, const Config& config);

struct RequeueDone {
  bool start_advanced = false;  // start_now was asked for and worked
};

// A pending job only gets the list. Without `nodes` its list stays as it is. Error: as Commands' methods, where the job
// is not requeued, or is without the list; user where `nodes` are no host names. When release fails in the end, the
// hint says what to type.
RequeueDone requeue_excluding(const Commands& slurm, std::uint32_t job, const std::vector<std::string>& nodes,
                              const RequeueOptions& options, Clock& clock);

// Returns the existing list with the nodes added, folded. A list that cannot be parsed is kept unchanged in front.
std::string merge_excluded(const std::string& there, const std::vector<std::string>& nodes);

}  // namespace ms::slurm
