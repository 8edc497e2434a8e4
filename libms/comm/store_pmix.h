// The rendezvous store over PMIx: the launcher's own server (mpirun's daemon, Slurm's mpi/pmix plugin) keeps the
// values, so nothing here needs MPI. Found out with OpenPMIx 4.2, OpenMPI 4.1 and Slurm 22.05:
//  - On one node the server holds a PMIx_Get back until the value is committed or PMIX_TIMEOUT passes. A value of a
//  rank
//    on another node is fetched anew by every PMIx_Get: before that rank's first commit the request waits there, and
//    PMIX_TIMEOUT is not obeyed; afterwards it returns at once, found or not. So get() asks without blocking, keeps the
//    deadline itself, and asks again, ever more slowly, until the value is there.
//  - PMIX_IMMEDIATE never leaves the node, and Slurm's PMIx_Fence is no barrier unless it collects data: neither is
//  used.
#pragma once

#include <chrono>
#include <memory>

#include "comm/first_cause.h"
#include "comm/store.h"

namespace ms::comm {

class PmixStore : public Store {
 public:
  // Success path only, when no rank will ask this one any more: leaves the server. The destructor tells nobody.
  virtual void close() = 0;
};

// Joins the launcher's PMIx server as `rank`; thread-safe beside MPI, which counts its own use of PMIx. Null where PMIx
// is not built in or the launcher gave this process no server, which is the same for all ranks of a launch. Throws
// Error("comm.store") where a server is there but cannot be joined. `cause` must outlive the store.
std::unique_ptr<PmixStore> open_pmix_store(int rank, const FirstCause& cause);

// Collective over the launch: returns when all of its processes have called it. Nothing where there is no PMIx. Throws
// Error("comm.store"), or Error("comm.deadline") when others do not come.
void pmix_barrier(std::chrono::milliseconds deadline);

}  // namespace ms::comm
