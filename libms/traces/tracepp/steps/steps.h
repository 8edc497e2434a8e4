// Finds when each step took place on a rank, as its device saw it. The host runs ahead of the device, so a step lasts
// from the end of the previous one to its own end. All analyses of steps use it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

struct StepSpan {
  std::int32_t step = kNoStep;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t length_ns() const { return end_ns - begin_ns; }
};

// Returns the finished steps of a rank, ordered by number and time, without overlap. They come from its Kind::step
// events; if it has none, as in traces of other programs, from the step numbers of its events; if these have none
// either, all events together are one step, kNoStep. A step whose predecessor is not known begins with its own first
// event.
std::vector<StepSpan> step_spans(const RankTrace& rank, const std::vector<EventInfo>& infos);

}  // namespace ms::tracepp
