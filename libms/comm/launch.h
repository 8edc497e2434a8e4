// How this process was started, read from what launchers leave in its environment. Knows nothing of MPI.
#pragma once

#include <functional>
#include <string_view>

namespace ms::comm {

struct Launch {
  std::string_view launcher;           // "mpirun", "srun"; empty where there was none
  int rank = 0, size = 1;              // among the processes that were started together
  bool pmix = false;                   // the launcher gave this process a PMIx server: it can find the others
  int local_rank = 0, local_size = 1;  // among those of them that run on this node
};

// `variable` is getenv, or a test's.
Launch launch_in(const std::function<const char*(const char*)>& variable);
Launch this_launch();

// Before an error that every process of a launch finds alike is printed: rank 0 returns at once, the others some
// seconds later, when rank 0's exit has had the launcher end them. Who is still there has something of its own to say.
void let_rank_0_speak();

}  // namespace ms::comm
