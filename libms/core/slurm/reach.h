// Whether nodes answer, asked here and now: Slurm itself takes SlurmdTimeout (300 s, say) to see that one does not.
#pragma once

#include <string>
#include <vector>

#include "slurm/commands.h"

namespace ms::slurm {

// The nodes whose slurmd takes no connection within `patience_s`, all asked at the same time. `default_port`: of those
// without one of their own. A node whose address has no number is taken to answer.
std::vector<std::string> silent_nodes(const std::vector<Node>& nodes, int default_port, double patience_s);
// The same of nodes that are named, in a cluster of this configuration; takes two seconds. Throws what
// Commands::nodes() throws.
std::vector<std::string> silent_nodes(const Commands& slurm, const Config& config,
                                      const std::vector<std::string>& names);

}  // namespace ms::slurm
