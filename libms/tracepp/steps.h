// When each step took place on a rank, as its device saw it. The host runs ahead of the device, so a step lasts from
// the end of the one before it to its own end. The analyses that speak of steps begin here. Pure.
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

// The finished steps of a rank, rising in number and in time, none overlapping another. By its Kind::step events; where
// it has none, as in traces of other programs, by the step numbers of its events; where these have none either, all
// events together are one step, kNoStep. A step whose predecessor is not known begins with its own first event.
std::vector<StepSpan> step_spans(const RankTrace& rank, const std::vector<What>& whats);

}  // namespace ms::tracepp
