// [guard]: what happens to a step whose gradients would harm the model, and to a device that computes wrongly.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace ms::train {

struct GuardConfig {
  std::string nonfinite = "skip";
  std::string spike = "ignore";
  double spike_zscore = 8;
  std::int64_t window = 128;
  std::int64_t max_skips = 10;
  std::int64_t rollback_steps = 1;
  std::int64_t max_rollbacks = 3;
  std::int64_t replay_every = 0;

  bool rolls_back() const { return nonfinite == "rollback" || spike == "rollback"; }
};

inline constexpr Field<GuardConfig> kGuardFields[] = {
    {.key = "nonfinite",
     .member = &GuardConfig::nonfinite,
     .doc =
         "What to do if the gradient norm is NaN or infinite, as after a NaN loss. skip: update neither parameters nor "
         "optimizer state, and continue with the next data. stop: end the run with code 2, without that step's update, "
         "as Megatron-LM does without --no-check-for-nan-in-loss-and-grad. rollback: resume from a checkpoint before "
         "that step, and leave out the data from the checkpoint up to and including that step. Ranks that are threads "
         "restart by themselves; processes exit with code 75, and ms-driver or the job script restarts them.",
     .choices = {"skip", "stop", "rollback"}},
    {.key = "spike",
     .member = &GuardConfig::spike,
     .doc = "What to do if the gradient norm is far above the previous ones. warn: log a warning; skip, stop and "
            "rollback: as for nonfinite.",
     .choices = {"ignore", "warn", "skip", "stop", "rollback"}},
    {"spike_zscore", &GuardConfig::spike_zscore,
     "A gradient norm is a spike if it is more than this many standard deviations above the mean of the window.",
     Unit::none, 1, 1e6},
    {"window", &GuardConfig::window,
     "Number of earlier gradient norms with which a norm is compared. Only norms of updates from steps with targets "
     "count, and the newest is from two steps before. No spike is detected until the window is full; it is empty when "
     "a run starts or resumes.",
     Unit::none, 2, 10'000},
    {"max_skips", &GuardConfig::max_skips,
     "End the run with code 2 after this many skipped steps in a row: it has diverged.", Unit::none, 1, 1e9},
    {"rollback_steps", &GuardConfig::rollback_steps,
     "A rollback loads the newest checkpoint that is at least this many steps older than the bad step. The cause of a "
     "bad step is often some steps earlier.",
     Unit::none, 1, 1e9},
    {"max_rollbacks", &GuardConfig::max_rollbacks,
     "Maximum number of rollbacks of a run, over all its starts. The next one ends the run with code 2. rollbacks.json "
     "in checkpoint.dir lists the rollbacks and the samples that they left out.",
     Unit::none, 1, 1e6},
    {"replay_every", &GuardConfig::replay_every,
     "Detect silent data corruption: at intervals of this many steps, all dp ranks recompute a microbatch of one dp "
     "rank, forward and backward, and compare a checksum of the loss and all gradients. The dp ranks take turns. If "
     "most dp ranks agree, the run ends and names the others, with code 69 if they are on one node, else with 76. With "
     "two dp ranks it is not known which one is wrong: the code is 76. The cost is the time of a microbatch without "
     "overlap in the pipeline, and one read of the gradients; the log shows it as a share of the time. The optimizer's "
     "update is not checked. Needs mesh.dp of at least 2, mesh.ep = 1, mesh.cp = 1, no mesh.expert_tp of its own, and "
     "the same processor or GPU "
     "on all ranks. 0: never.",
     Unit::none, 0, 1e9},
};

}  // namespace ms::train
