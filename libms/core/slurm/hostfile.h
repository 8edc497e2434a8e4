// Lists of hosts with slots, as people and MPI write them: one host or hostlist a line, "n1", "n1 slots=8", "n1:8",
// "n[001-004] slots=8"; what follows a '#' is a comment. Pure functions. And the same list as Slurm gives it to a job.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "slurm/job_env.h"

namespace ms::slurm {

inline constexpr int kMaxSlots = 4096;  // of a host

struct HostSlots {
  std::string name;
  int slots = 1;  // as in Open MPI's files, where none are named
};

// `source` is what the text is called in errors. Error("slurm.hostfile", user) with the line: not such a line, a host
// for the second time, no host at all.
std::vector<HostSlots> parse_hostfile(std::string_view text, std::string_view source);

// SLURM_JOB_NODELIST and SLURM_TASKS_PER_NODE. Error("slurm.hostfile", user) where they are not set, as outside a job.
std::vector<HostSlots> job_hosts(const Getenv& getenv);

}  // namespace ms::slurm
