// The newest lines of a run's metrics.jsonl, as ms-train writes them. The page shows them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace ms::tracepp {

inline constexpr double kNotWritten = std::numeric_limits<double>::quiet_NaN();

struct StepMetrics {
  std::int64_t step = 0;  // from 1
  double loss = kNotWritten, step_s = kNotWritten, tokens_per_s = kNotWritten, data_wait_s = kNotWritten;
};

struct MetricsTail {
  std::vector<StepMetrics> steps;  // in the order of the file
  std::size_t not_understood = 0;  // lines
};

// Parses whole lines: what stands before the first newline is left out if `is_cut`, what stands behind the last one
// always, since it is still being written.
MetricsTail parse_metrics(std::string_view text, bool is_cut);

}  // namespace ms::tracepp
