// From settings to a running world: ranks as threads of this process, or this process as one rank of an MPI world.
#pragma once

#include <functional>

#include "train/trainer.h"

namespace ms::train {

struct LaunchOptions {
  bool fresh = false;                        // begin at step 0, whatever checkpoints there are
  std::function<void(const Outcome&)> tell;  // by rank 0, what has come of a run that did not fail, once it is known
};

// Both save the resolved configuration with the run, write the verdict, and throw the first cause where a run failed.
ExitCode run_threads(const Loaded& loaded, const LaunchOptions& options);
// Under mpirun or srun --mpi=pmix. After a failure it leaves the process by itself, since peers may be gone and MPI
// cannot be ended alone: one rank says what the first cause was, and all exit with its code.
ExitCode run_mpi(const Loaded& loaded, const LaunchOptions& options);

}  // namespace ms::train
