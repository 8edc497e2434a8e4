// From settings to a running world: ranks as threads of this process, or this process as one rank of an MPI world.
#pragma once

#include <functional>

#include "train/run/inference.h"
#include "train/run/trainer.h"

namespace ms::train {

struct LaunchOptions {
  bool fresh = false;                               // begin at step 0, whatever checkpoints there are
  std::function<void(const Outcome&)> report = {};  // called by rank 0 when a run ended without failure
  // Uses a model instead of training one, if not null. That has no run directory, so no verdict, and reports nothing.
  const Inference* inference = nullptr;
  int starts = 0;  // how often the run began in this process before: launch() counts
};

// Runs the configuration: under mpirun or srun --mpi=pmix this process is one rank, otherwise its threads are all
// ranks. Saves the resolved configuration with the run, writes the verdict, and returns the run's exit code.
//
// A failed run of threads throws the first cause. A failed MPI process exits by itself, since peers may be gone and MPI
// cannot be ended alone: one rank says what the first cause was, and all exit with its code.
ExitCode launch(const Loaded& loaded, const LaunchOptions& options);
// The same ranks for a command that uses a model.
ExitCode launch_inference(const Loaded& loaded, const Inference& inference);

}  // namespace ms::train
