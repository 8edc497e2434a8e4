// Ranks as processes, over MPI. One thread owns the library and uses non-blocking calls only, so that every wait has a
// deadline; peers on the same host that die are noticed within about a second. Requires a build with MPI.
//
// After an abort or any failure, MPI is not finalised, because operations in progress may never end. The program then
// calls World::abort() with the error it caught, which returns when the other ranks have been notified (within a
// second), flushes its output and exits by quick_exit().
#pragma once

#include <chrono>
#include <memory>

#include "comm/world.h"

namespace ms::comm {

bool mpi_built_in();
// The implementation of the key-value store: PMIx if it is built in and the launcher runs a PMIx server, else MPI
// messages.
enum class StoreChoice { automatic, messages };
// Joins the world; calls MPI_Init, so at most once per process. `deadline`: how long an operation may wait for its
// peers. Throws Error("comm.mpi"), also if this process was launched with others that it cannot find, and
// Error("comm.deadline") if other ranks do not join in time.
std::unique_ptr<World> make_mpi_world(std::chrono::milliseconds deadline, StoreChoice store = StoreChoice::automatic);

}  // namespace ms::comm
