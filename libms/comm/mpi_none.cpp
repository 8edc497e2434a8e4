// A build without MPI.
#include "comm/mpi_world.h"

namespace ms::comm {

bool mpi_built_in() { return false; }

std::unique_ptr<World> make_mpi_world(std::chrono::milliseconds) {
  throw user_error("comm.mpi", "this program was built without MPI",
                   "build with MS_MPI=ON, or run the ranks as threads");
}

}  // namespace ms::comm
