// Ranks as processes: MPI. One thread owns the library and uses non-blocking calls only, so that every wait has a
// deadline. Exists only where MPI was built in (mpi_available()).
#pragma once

#include <memory>

#include "comm/world.h"

namespace ms::comm {

bool mpi_built_in();
// Whether this process was started by mpirun or by srun --mpi=pmix with more than a singleton world to join.
bool launched_by_mpi();
// Joins the world: MPI_Init. Throws Error("comm.mpi").
std::unique_ptr<World> make_mpi_world(std::chrono::milliseconds deadline);

}  // namespace ms::comm
