#include "comm/launch.h"

#include <chrono>
#include <cstdlib>
#include <thread>

namespace ms::comm {
namespace {

constexpr std::chrono::seconds kFirstWord{2};  // mpirun and srun -K end a job within one

struct Launcher {
  const char* name;
  const char* size;
  const char* rank;
};
// OpenMPI's mpirun may run inside a step of srun, not the other way round.
constexpr Launcher kLaunchers[] = {{"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                   {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};

}  // namespace

Launch launch_in(const std::function<const char*(const char*)>& variable) {
  for (const Launcher& launcher : kLaunchers) {
    const char *size = variable(launcher.size), *rank = variable(launcher.rank);
    if (size == nullptr || rank == nullptr) continue;
    return {launcher.name, std::atoi(rank), std::atoi(size), variable("PMIX_RANK") != nullptr};
  }
  return {};
}

Launch this_launch() {
  return launch_in([](const char* name) { return std::getenv(name); });
}

void let_rank_0_speak() {
  if (this_launch().rank > 0) std::this_thread::sleep_for(kFirstWord);
}

}  // namespace ms::comm
