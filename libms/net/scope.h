// Whom a check may load, and how they lie in the fabric.
#pragma once

#include <string>
#include <vector>

namespace ms::net {

// The nodes of a check: those that are named, else all of the job. Inside a job its own nodes and nobody else's, since
// other links may be in use. `job`: hostlist of the job, empty outside of one; `named`: hostlist, empty: not given.
// Throws Error("net.nodes", user), Error("net.job", user): nobody is named, one twice, one of another job, srun without
// a job.
std::vector<std::string> nodes_in_scope(const std::string& named, const std::string& job, const std::string& launch);

struct Layout {
  std::vector<int> group_of;          // leaf switch of each node; a node that is under none is a group of its own
  std::vector<std::string> switches;  // names of the groups
};
// `from`: a topology.conf, or the word slurm: what scontrol says. Throws Error("slurm.topology"), Error("file.*").
Layout layout_of(const std::vector<std::string>& nodes, const std::string& from);

}  // namespace ms::net
