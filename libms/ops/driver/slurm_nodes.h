// Tells which nodes of an allocation Slurm starts nothing on any more: a node whose slurmd is gone leaves a --no-kill
// job, though its agent may live and answer.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "slurm/commands.h"
#include "slurm/records.h"

namespace ms::driver {

// By node, why: it left the job, its state forbids it, or its slurmd takes no connection. Pure. `nodes`: as scontrol
// shows them; `job_nodes`: the job's now, as a hostlist; `silent`: whose slurmd takes no connection.
std::map<std::string, std::string> unusable_nodes(const std::vector<std::string>& allocation,
                                                  const std::vector<slurm::Node>& nodes, const std::string& job_nodes,
                                                  const std::vector<std::string>& silent);

// Asks Slurm, and every slurmd of the allocation; takes seconds. Throws Error("slurm.command", slurm).
std::map<std::string, std::string> ask_unusable_nodes(const slurm::Commands& slurm, std::uint32_t job,
                                                      const std::vector<std::string>& allocation);

// The nodes that ms-diag avoid has Slurm use last, because they are likely to fail. None where Slurm does not answer:
// it is no more than a preference.
std::set<std::string> ask_kept_for_last(const slurm::Commands& slurm);

}  // namespace ms::driver
