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
// What keeps the rendezvous store: PMIx where it is built in and the launcher has a server of it, else messages.
enum class StoreChoice { automatic, messages };
// Joins the world: MPI_Init, once in a process. `deadline` is how long an operation may wait for its peers. Throws
// Error("comm.mpi"), also where this process was launched with others that it could not find; Error("comm.deadline")
// when the others do not come.
std::unique_ptr<World> make_mpi_world(std::chrono::milliseconds deadline, StoreChoice store = StoreChoice::automatic);

}  // namespace ms::comm
