// Ranks as processes: MPI. One thread owns the library and uses non-blocking calls only, so that every wait has a
// deadline; peers on the same host that die are noticed within about a second. Works only where MPI was built in.
//
// After an abort, or any failure, MPI is not finalised: what was under way may never end. The program then calls
// World::abort() with what it caught, which returns when the others have been told (within a second), flushes its
// output and leaves by quick_exit().
#pragma once

#include <chrono>
#include <memory>

#include "comm/world.h"

namespace ms::comm {

bool mpi_built_in();
// Whether this process was started by mpirun or by srun --mpi=pmix with more than a singleton world to join.
bool launched_by_mpi();
// Joins the world: MPI_Init, once in a process. `deadline` is how long an operation may wait for its peers. Throws
// Error("comm.mpi"), or Error("comm.deadline") when the others do not come.
std::unique_ptr<World> make_mpi_world(std::chrono::milliseconds deadline);

}  // namespace ms::comm
