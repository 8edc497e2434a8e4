// The text of ms-tracepp watch about a run under way: a screen for a terminal, lines for a file. Pure.
#pragma once

#include <string>
#include <vector>

#include "tracepp/page/metrics.h"

namespace ms::tracepp {

struct Watched {
  std::string dir;
  MetricsTail metrics = {};
  double metrics_age_s = 0;  // since metrics.jsonl was last written
  std::string traces = {};   // what the traces say, lines: what to look at first, the parts of a step; may be empty
};

std::string screen_text(const Watched& watched);

// "step 412 loss 2.345 1.23s 12.3k tokens/s, 2 % of it waiting for data".
std::string line_text(const StepMetrics& step);

// One character a value, the newest `most` of them, a bar from low to high; a blank for one that is not
// finite. Values that are equal are drawn low.
std::string sparkline(const std::vector<double>& values, std::size_t most);

}  // namespace ms::tracepp
