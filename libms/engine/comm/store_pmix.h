// The key-value store over PMIx: the launcher's own server (mpirun's daemon, Slurm's mpi/pmix plugin) keeps the values,
// so this needs no MPI. Observed with OpenPMIx 4.2, OpenMPI 4.1 and Slurm 22.05:
//  - On one node the server delays a PMIx_Get until the value is committed or PMIX_TIMEOUT passes. A value of a rank on
//    another node is fetched by every PMIx_Get anew: before that rank's first commit the request waits there and
//    PMIX_TIMEOUT is ignored; afterwards it returns at once, found or not. So get() uses the non-blocking call,
//    enforces the deadline itself, and asks again at growing intervals until the value exists.
//  - PMIX_IMMEDIATE never queries another node, and Slurm's PMIx_Fence is no barrier unless it collects data.
//  - OpenPMIx 4.2 loses a PMIx_Get of the job's own values (rank PMIX_RANK_WILDCARD) that is called while one of any
//    rank is not yet answered: it waits for that answer, and the answer then serves its own rank alone. MPI_Init makes
//    such calls, and never returns where it meets that.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "comm/first_cause.h"
#include "comm/store.h"

namespace ms::comm {

class PmixStore : public Store {
 public:
  // Returns the value, or nullopt where it is not published within `patience`. With a patience of 0 the server answers
  // at once from what it has: use that for ranks of this node beside MPI_Init, which such an answer cannot block.
  virtual std::optional<std::string> find(int rank, std::string_view key, std::chrono::milliseconds patience) = 0;
  // Returns the ranks of the launch on this node, this one included.
  virtual std::vector<int> ranks_on_node() const = 0;
  // Leaves the server. Success path only, when no rank will read this one's values any more. The destructor does not
  // leave.
  virtual void close() = 0;
};

// Joins the launcher's PMIx server as `rank`; thread-safe beside MPI, which counts its own use of PMIx. Returns null if
// PMIx is not built in or the launcher runs no server, which is the same for all ranks of a launch. Throws
// Error("comm.store") if a server exists but cannot be joined. `cause` must outlive the store.
std::unique_ptr<PmixStore> open_pmix_store(int rank, const FirstCause& cause);

// Collective over the launch: returns when all of its processes have called it, at once without PMIx. Throws
// Error("comm.store"), or Error("comm.deadline") if other processes do not join.
void pmix_barrier(std::chrono::milliseconds deadline);

}  // namespace ms::comm
