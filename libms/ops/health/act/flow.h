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

// Slurm's record of this machine. The checks look at the machine that they run on, so that must be the one that is
// drained. What Slurm knows of it decides: a job's environment says what its user likes. Throws ms::Error where the
// name is another machine's.
slurm::Node own_node(const std::string& name, const World& world);
// Returns why the checks that led to a drain of ours (their codes are words of the reason) did not judge; empty: they
// did.
std::string not_verified(const std::string& reason, const std::vector<Result>& results);

}  // namespace ms::health
