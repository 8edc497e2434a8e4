// The flow around a job and of undrain: what is looked at, asked and done, in which order (prolog.h says what for).
// Everything it needs comes in through World, so that every branch and every failure can be tried.
#pragma once

#include <string>

#include "health/act/world.h"
#include "health/policy.h"
#include "slurm/job_env.h"

namespace ms::health {

// 69: fail this prolog; 0: let the job start.
int prolog_flow(const Policy& policy, const slurm::JobEnv& job, const World& world);
void epilog_flow(const Policy& policy, const slurm::JobEnv& job, const World& world);
// The periodic check of a node, whatever runs there: `no_job` has only the node's name. Jobs are left alone.
void health_flow(const Policy& policy, const slurm::JobEnv& no_job, const World& world);

struct UndrainResult {
  int status = 0;    // as a Nagios plugin: 0 not drained by us any more, 1 not ours to take back, 2 findings stand
  std::string text;  // what was found and done, a line each
};
// Only on the node itself; `verified` also wants that what it was drained for was really looked at again.
// Throws ms::Error where this is another machine, where Slurm does not answer, or the undrain could not be remembered:
// the node is then left drained.
UndrainResult undrain_flow(const Policy& policy, const std::string& node, bool verified, const World& world);

}  // namespace ms::health
