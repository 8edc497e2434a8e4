// Commands whose ranks are the processes of a launch, started as one process: inside a job that process becomes the
// launch.
#pragma once

#include <string>
#include <vector>

namespace ms::net {

// Returns where this process is one of several, or is in no job, or in a step of one; else becomes
// `srun --mpi=pmix this-program its-arguments`, with one task on each of `nodes`, or without any as many tasks as the
// job has. `arguments` are this program's, without its name. Throws Error("net.launch", slurm) where srun cannot be
// started.
void become_launch(const std::vector<std::string>& arguments, const std::vector<std::string>& nodes);

// This process's own arguments, without its name.
std::vector<std::string> own_arguments();
std::string own_path();

}  // namespace ms::net
