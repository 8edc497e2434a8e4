#include "data/batch.h"

#include <algorithm>

#include "base/error.h"

namespace ms::data {

std::vector<RampStage> ramp_up(std::int64_t start, std::int64_t increment, std::int64_t samples,
                               std::int64_t global_batch) {
  std::vector<RampStage> stages;
  if (start == 0) return stages;
  MS_ASSERT(start < global_batch && increment > 0 && (global_batch - start) % increment == 0,
            "a batch that grows from {} by {} to {}", start, increment, global_batch);
  const std::int64_t count = (global_batch - start) / increment;
  std::int64_t done = 0;
  for (std::int64_t stage = 0; stage < count; ++stage) {
    const std::int64_t batch = start + stage * increment;
    const std::int64_t end = (samples * (stage + 1) + count - 1) / count;
    const std::int64_t steps = std::max<std::int64_t>(0, (end - done + batch - 1) / batch);
    if (steps > 0) stages.push_back({batch, steps});
    done += steps * batch;
  }
  return stages;
}

std::int64_t BatchShape::ramp_steps() const {
  std::int64_t steps = 0;
  for (const RampStage& stage : ramp) steps += stage.steps;
  return steps;
}

std::int64_t BatchShape::batch(std::int64_t step) const {
  for (const RampStage& stage : ramp) {
    if (step < stage.steps) return stage.batch;
    step -= stage.steps;
  }
  return global_batch;
}

std::int64_t BatchShape::samples_before(std::int64_t step) const {
  std::int64_t samples = 0;
  for (const RampStage& stage : ramp) {
    const std::int64_t steps = std::min(step, stage.steps);
    samples += steps * stage.batch;
    step -= steps;
  }
  return samples + step * global_batch;
}

std::int64_t BatchShape::first_sample(std::int64_t step) const {
  std::int64_t at = origin_step, sample = origin_sample;
  if (step < origin_step) {  // counts back from the next position that is known
    const auto next = std::ranges::find_if(skips, [&](const Skip& skip) { return skip.step > step; });
    if (next != skips.end() && next->step <= origin_step) at = next->step, sample = next->begin;
  } else {
    for (const Skip& skip : skips) {
      if (skip.step >= origin_step && skip.step <= step) at = skip.step, sample = skip.end;
    }
  }
  return sample + samples_before(step) - samples_before(at);
}

std::int64_t BatchShape::skipped_before(std::int64_t step) const {
  std::int64_t samples = 0;
  for (const Skip& skip : skips) samples += skip.step <= step ? skip.end - skip.begin : 0;
  return samples;
}

}  // namespace ms::data
