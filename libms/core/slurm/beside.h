// The command line that starts something on nodes of a job beside whatever runs there. Pure.
#pragma once

#include <string>
#include <vector>

namespace ms::slurm {

// srun and one task of `command` on each of these nodes: it takes no processors, no other step waits for it, and it
// ends no other. `reads_input`: every task reads what srun reads; otherwise none does.
std::vector<std::string> srun_beside(const std::vector<std::string>& nodes, const std::vector<std::string>& command,
                                     bool reads_input = false);

}  // namespace ms::slurm
