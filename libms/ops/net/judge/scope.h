// Whom a check may load, and how they lie in the fabric.
#pragma once

#include <string>
#include <vector>

#include "net/judge/layout.h"
#include "slurm/topology.h"

namespace ms::net {

// The nodes of a check: those that are named, else all of the job. Inside a job, only the job's own nodes,
// since other links may be in use. `job`: hostlist of the job, empty outside of one; `named`: hostlist, empty: not
// given. Throws Error("net.nodes", user), Error("net.job", user): no node is named, one twice, one of another job, srun
// without a job.
std::vector<std::string> nodes_in_scope(const std::string& named, const std::string& job, const std::string& launch);

// `from`: a topology.conf, or the word slurm: what scontrol says. Throws Error("slurm.topology"), Error("file.*").
slurm::Topology read_topology(const std::string& from);
// The switches above these nodes, leaves first; a node that is under none has one of its own.
Layout layout_of(const std::vector<std::string>& nodes, const slurm::Topology& topology);

}  // namespace ms::net
