// From settings to a running world: ranks as threads of this process, or this process as one rank of an MPI world.
#pragma once

#include "train/trainer.h"

namespace ms::train {

// Both save the resolved configuration with the run, write the verdict, and throw the first cause where a run failed;
// the outcome's sample is on rank 0 only.
struct Launched {
  Outcome outcome;
  int rank = 0;  // of this process, 0 for threads
  ExitCode code = ExitCode::done;
};

struct LaunchOptions {
  bool fresh = false;  // begin at step 0, whatever checkpoints there are
};

Launched run_threads(const Loaded& loaded, const LaunchOptions& options);
// Under mpirun or srun --mpi=pmix. After a failure it leaves the process by itself, since peers may be gone and MPI
// cannot be ended alone: one rank says what the first cause was, and all exit with its code.
Launched run_mpi(const Loaded& loaded, const LaunchOptions& options);

}  // namespace ms::train
