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
     .doc = "What happens at a gradient norm that is NaN or infinite, as that of a loss that is NaN. skip: the step "
            "changes neither parameters nor the optimizer's state, and the next one has the next data. stop: the run "
            "ends with code 2 and without that step's update, as Megatron-LM's does unless it has "
            "--no-check-for-nan-in-loss-and-grad. rollback: the run goes back to a checkpoint before that step, and on "
            "with the data after it; what was read from the checkpoint up to that step is left out. Ranks as threads "
            "begin again by themselves; others end with code 75, and the driver or the job script starts them again.",
     .choices = {"skip", "stop", "rollback"}},
    {.key = "spike",
     .member = &GuardConfig::spike,
     .doc =
         "What happens at a gradient norm far above those before it. warn: a line in the log; skip, stop and rollback: "
         "as for nonfinite.",
     .choices = {"ignore", "warn", "skip", "stop", "rollback"}},
    {.key = "spike_zscore",
     .member = &GuardConfig::spike_zscore,
     .doc = "A gradient norm is a spike if it is more than so many standard deviations above the mean of the window.",
     .min = 1,
     .max = 1e6},
    {.key = "window",
     .member = &GuardConfig::window,
     .doc = "Gradient norms of as many updates are compared with, up to the step two before. There is no spike before "
            "the window is full; it is empty when a run begins or resumes.",
     .min = 2,
     .max = 10'000},
    {.key = "max_skips",
     .member = &GuardConfig::max_skips,
     .doc = "The run ends with code 2 when so many steps on end were skipped: it has diverged.",
     .min = 1,
     .max = 1e9},
    {.key = "rollback_steps",
     .member = &GuardConfig::rollback_steps,
     .doc = "A rollback takes the newest checkpoint that is at least so many steps older than the step that causes it. "
            "What spoils a model often begins before the norm shows it.",
     .min = 1,
     .max = 1e9},
    {.key = "max_rollbacks",
     .member = &GuardConfig::max_rollbacks,
     .doc = "A run that had so many rollbacks, counted over all its starts, ends with code 2 instead of another one. "
            "rollbacks.json in checkpoint.dir lists them, and the samples that the run leaves out.",
     .min = 1,
     .max = 1e6},
    {.key = "replay_every",
     .member = &GuardConfig::replay_every,
     .doc =
         "After every so many steps all dp ranks compute a microbatch of one of them again, another rank's each time, "
         "forward and backward, and compare a checksum of the loss and all gradients: a device that computes wrongly "
         "and says nothing differs. Where most dp ranks agree, the run ends and names the others, with code 69 where "
         "they are on one node, else with 76; of two dp ranks it cannot be told which is wrong: 76. It costs a "
         "microbatch's time without overlap in the pipeline, and reading the gradients once; the log shows it as a "
         "share of the time. The optimizer's update is not compared. Needs mesh.dp of 2 or more, and the same "
         "processor or GPU on all ranks. 0: never.",
     .min = 0,
     .max = 1e9},
};

}  // namespace ms::train
