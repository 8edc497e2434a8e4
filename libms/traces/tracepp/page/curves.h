// The curves of runs beside each other, from the metrics.jsonl that ms-train writes into run.dir: loss, step time and
// tokens a second. Reads files; the rest is pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"
#include "tracepp/page/columns.h"
#include "tracepp/page/metrics.h"

namespace ms::tracepp {

// One run. Of a long one each point is the mean of several steps, with the number of the last.
inline constexpr std::size_t kMostPoints = 2000;
struct Curve {
  std::string dir;  // as the user named it
  std::vector<StepMetrics> points = {};
  std::size_t steps = 0;  // that were read
  double median_step_s = kNotWritten, median_tokens_per_s = kNotWritten;
  std::size_t not_understood = 0;  // lines
};

// The paths that a user named: traces to read, and runs with curves.
struct NamedRuns {
  std::vector<std::string> traces;
  std::vector<std::string> runs;
};
// Takes the traces of the first path, and of others that are no run.dir; the curves of every path that is one, or its
// trace directory.
NamedRuns named_runs(const std::vector<std::string>& paths);
// Throws Error("file.*") where metrics.jsonl cannot be read.
std::vector<Curve> read_curves(const std::vector<std::string>& runs);

// Returns `steps` as at most kMostPoints points.
std::vector<StepMetrics> thinned(const std::vector<StepMetrics>& steps);

Json curves_data(const std::vector<Curve>& curves, Columns& columns);
// A table of the runs, for a terminal and for a page; empty where there is none.
std::string curves_text(const std::vector<Curve>& curves);
std::string curves_html(const std::vector<Curve>& curves);

}  // namespace ms::tracepp
