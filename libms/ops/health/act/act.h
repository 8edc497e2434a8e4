// Acts on a prolog's or an epilog's findings that may drain: under a lock, asks Slurm whether the site is ready, drains
// below the cap, records and reports it, and decides whether the job is failed. Called by flow.cpp. Nothing here throws
// on account of Slurm, the state directory or the run-time directory: the answer is then "do nothing".
#pragma once

#include <string>
#include <vector>

#include "base/finding.h"
#include "health/act/memory.h"
#include "health/act/world.h"
#include "health/policy.h"
#include "slurm/job_env.h"

namespace ms::health {

enum class When { before_start, after_end };

struct Acted {
  bool drained = false;   // the node is drained by us, now or before, and that was counted
  bool fail_job = false;  // only before_start
  std::vector<std::string>
      to_user;  // which finding there is, and why the job starts all the same; in observe only if it requires
};

// `findings`: what draining() returned, at least one.
Acted act_on(const std::vector<Finding>& findings, When when, const Policy& policy, const slurm::JobEnv& job,
             const World& world, const Memory& memory);

}  // namespace ms::health
