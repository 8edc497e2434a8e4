#include "slurm/beside.h"

#include <fmt/format.h>

#include "slurm/hostlist.h"

namespace ms::slurm {

std::vector<std::string> srun_beside(const std::vector<std::string>& nodes, const std::vector<std::string>& command,
                                     bool reads_input) {
  std::vector<std::string> argv{"srun",
                                "--overlap",
                                "--no-kill",
                                "--wait=0",
                                "--kill-on-bad-exit=0",
                                "--mpi=none",
                                reads_input ? "--input=all" : "--input=none",
                                "--cpu-bind=none",
                                fmt::format("--nodes={}", nodes.size()),
                                fmt::format("--ntasks={}", nodes.size()),
                                "--ntasks-per-node=1",
                                "--nodelist=" + fold_hostlist(nodes)};
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

}  // namespace ms::slurm
