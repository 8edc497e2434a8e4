// The implementation of mpi_world.h in a build without MPI (MS_MPI=OFF); mpi_world.cpp is the other one.
#include "comm/mpi_world.h"
#include "slurm/launch.h"

namespace ms::comm {

bool mpi_built_in() { return false; }

std::unique_ptr<World> make_mpi_world(std::chrono::milliseconds, StoreChoice) {
  const slurm::Launch launch = slurm::this_launch();
  if (launch.size == 1) throw user_error("comm.mpi", "this program was built without MPI", "build with MS_MPI=ON");
  throw user_error(
      "comm.mpi",
      fmt::format("{} started {} processes, but this program was built without MPI: each would be a run of "
                  "its own, in one run directory",
                  launch.launcher, launch.size),
      "build with MS_MPI=ON, or start one process with ranks as threads");
}

}  // namespace ms::comm
