// How this process was started, read from what launchers leave in the environment.
#include <cstdlib>
#include <string>

#include "comm/mpi_world.h"

namespace ms::comm {
namespace {
int number_in(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}
}  // namespace

bool launched_by_mpi() {
  if (number_in("OMPI_COMM_WORLD_SIZE") > 1) return true;                               // mpirun
  return std::getenv("PMIX_RANK") != nullptr && number_in("SLURM_STEP_NUM_TASKS") > 1;  // srun --mpi=pmix
}

}  // namespace ms::comm
