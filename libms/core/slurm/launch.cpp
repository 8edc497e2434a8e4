#include "slurm/launch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/text.h"

namespace ms::slurm {
namespace {

constexpr std::chrono::seconds kReportDelay{2};  // mpirun and srun -K end a job within 1 s

struct Launcher {
  const char* name;
  const char* size;
  const char* rank;
};
// OpenMPI's mpirun may run inside an srun step, not the other way round.
constexpr Launcher kLaunchers[] = {{"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                   {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};

struct OtherLauncher {
  const char* name;
  const char* sign;  // which nothing else sets
  const char* size;
};
constexpr OtherLauncher kOtherLaunchers[] = {{"torchrun", "TORCHELASTIC_RUN_ID", "WORLD_SIZE"},
                                             {"mpiexec of MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE"},
                                             {"mpirun of MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"}};

using Variable = std::function<const char*(const char*)>;

// Returns how many tasks of the step run on node `index`, from SLURM_STEP_TASKS_PER_NODE such as "2(x3),1"; 1 if
// malformed.
int tasks_on_node(const char* text, int index) {
  for (const std::string& part : ms::split(text, ',')) {
    const std::size_t bracket = part.find("(x");
    index -= bracket == std::string::npos ? 1 : std::max(1, std::atoi(part.c_str() + bracket + 2));
    if (index < 0) return std::max(1, std::atoi(part.c_str()));
  }
  return 1;
}

int number(const char* text) { return text == nullptr ? 0 : std::atoi(text); }

void add_local(Launch& launch, const Variable& variable) {
  if (launch.launcher == "mpirun") {
    launch.local_rank = number(variable("OMPI_COMM_WORLD_LOCAL_RANK"));
    launch.local_size = number(variable("OMPI_COMM_WORLD_LOCAL_SIZE"));
  } else if (const char* tasks = variable("SLURM_STEP_TASKS_PER_NODE")) {
    launch.local_rank = number(variable("SLURM_LOCALID"));
    launch.local_size = tasks_on_node(tasks, number(variable("SLURM_NODEID")));
  }
  launch.local_size = std::max(1, launch.local_size);
  launch.local_rank = std::clamp(launch.local_rank, 0, launch.local_size - 1);
}

}  // namespace

Launch launch_in(const Variable& variable) {
  for (const Launcher& launcher : kLaunchers) {
    const char *size = variable(launcher.size), *rank = variable(launcher.rank);
    if (size == nullptr || rank == nullptr) continue;
    Launch launch{launcher.name, std::atoi(rank), std::atoi(size), variable("PMIX_RANK") != nullptr};
    add_local(launch, variable);
    return launch;
  }
  return {};
}

Launch this_launch() {
  return launch_in([](const char* name) { return std::getenv(name); });
}

std::string_view other_launcher_in(const Variable& variable) {
  if (!launch_in(variable).launcher.empty()) return "";
  for (const OtherLauncher& other : kOtherLaunchers) {
    if (variable(other.sign) != nullptr && number(variable(other.size)) > 1) return other.name;
  }
  return "";
}

std::string_view other_launcher() {
  return other_launcher_in([](const char* name) { return std::getenv(name); });
}

void let_rank_0_report_first() {
  if (this_launch().rank > 0) std::this_thread::sleep_for(kReportDelay);
}

}  // namespace ms::slurm
