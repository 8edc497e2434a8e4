// The prolog and the epilog of a job, run as root. First do no harm: whatever goes wrong here, the job starts, the node
// stays in service, and the log (syslog) says why. run_prolog returns 69 only after this node was drained for its own
// evidence and the job can be requeued (or insists, with --ms-preflight=require); run_epilog always returns 0.
#pragma once

#include <string>

#include "health/act/world.h"
#include "health/policy.h"
#include "slurm/job_env.h"

namespace ms::health {

// `policy_path`: load_policy_as_root reads it. Never throws.
int run_prolog(const std::string& policy_path, const slurm::JobEnv& job) noexcept;
int run_epilog(const std::string& policy_path, const slurm::JobEnv& job) noexcept;
// Slurm's HealthCheckProgram: drains `node`, this one, as an epilog does, in the same time. Always returns 0.
int run_health(const std::string& policy_path, const std::string& node) noexcept;

// For an operator's command: all calls of Slurm together have a minute, each ten seconds. Both outlive it.
World operators_world(const Policy& policy, Clock& clock);

// ms-diag undrain: removes our own drain of this node, if `verified` only after level 1 finds nothing that drains. Log
// lines from before no longer count. Returns a Nagios status and prints what it did.
int run_undrain(const Policy& policy, const std::string& node, bool verified);

}  // namespace ms::health
