// How many samples each step of a run takes, and so where in the run's order it begins. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace ms::data {

// Steps in a row that take `batch` samples each.
struct RampStage {
  std::int64_t batch = 0, steps = 0;
  bool operator==(const RampStage&) const = default;
};

// The stages before the batch has `global_batch` samples: it begins with `start` and grows by `increment` in even parts
// of the first `samples` samples; a stage ends with the step that reaches its part. None if `start` is 0. `increment`
// divides what is between `start` and `global_batch`.
std::vector<RampStage> ramp_up(std::int64_t start, std::int64_t increment, std::int64_t samples,
                               std::int64_t global_batch);

// Samples [begin, end) of the order that a run leaves out: step `step` begins with `end` instead of `begin`.
struct Skip {
  std::int64_t step = 0, begin = 0, end = 0;
  bool operator==(const Skip&) const = default;
};

struct BatchShape {
  std::int64_t seq;                                 // tokens of a sample that are trained on
  std::int64_t global_batch;                        // samples of a step, over all dp ranks, after the ramp-up
  std::int64_t origin_step = 0, origin_sample = 0;  // see Loader::start_at()
  std::vector<RampStage> ramp = {};
  std::vector<Skip> skips = {};  // of growing steps
  std::int64_t patch = 0;        // pixels a side of the patches that images are read as; 0: they are refused

  // Returns how many steps the ramp-up has.
  std::int64_t ramp_steps() const;
  // Returns how many samples a step takes.
  std::int64_t batch(std::int64_t step) const;
  // Returns how many samples the steps before this one take, in a run that began at step 0.
  std::int64_t samples_before(std::int64_t step) const;
  // Returns the position in the run's order of the first sample of a step. A resumed run starts at origin_sample,
  // whatever the batch size was before; or at the end of what is skipped there.
  std::int64_t first_sample(std::int64_t step) const;
  // Returns how many samples were skipped by the time that a step begins.
  std::int64_t skipped_before(std::int64_t step) const;
};

}  // namespace ms::data
