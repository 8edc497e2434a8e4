// How this process was started, from the environment variables that launchers set. Independent of MPI.
#pragma once

#include <functional>
#include <string_view>

namespace ms::slurm {

struct Launch {
  std::string_view launcher;           // "mpirun", "srun"; empty: started without a launcher
  int rank = 0, size = 1;              // among the processes started together
  bool pmix = false;                   // the launcher provides a PMIx server, through which processes find each other
  int local_rank = 0, local_size = 1;  // among those on this node
};

// Returns the launch that the environment describes. `variable` is getenv, or a test's.
Launch launch_in(const std::function<const char*(const char*)>& variable);
Launch this_launch();

// Returns the launcher that has started several processes which cannot find each other: not mpirun of Open MPI, nor
// srun. Empty: there is none. `variable` as above.
std::string_view other_launcher_in(const std::function<const char*(const char*)>& variable);
std::string_view other_launcher();

// Called before printing an error that every process of a launch finds alike: returns at once on rank 0, and elsewhere
// after some seconds, when rank 0's exit has made the launcher end the other processes. A process that is still alive
// then has an error of its own.
void let_rank_0_report_first();

}  // namespace ms::slurm
