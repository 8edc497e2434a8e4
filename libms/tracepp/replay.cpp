#include "tracepp/replay.h"

#include <algorithm>

#include "base/error.h"

namespace ms::tracepp {
namespace {

// Of clocks that were read on different nodes; what is earlier than this is not believed.
constexpr double kClockErrorS = 10e-3;

}  // namespace

Replay::Replay(const StepTrace& trace)
    : trace_(trace),
      graph_(make_step_graph(trace)),
      order_(order_of(graph_)),
      start_(trace.ops.size() * trace.lanes()),
      end_(start_.size()) {}

std::vector<double> Replay::steps(const std::vector<double>& durations) {
  const std::size_t lanes = trace_.lanes(), dp = static_cast<std::size_t>(trace_.dp);
  MS_ASSERT(durations.size() == start_.size(), "{} durations of {}", durations.size(), start_.size());
  const auto row = [&](std::vector<double>& values, int op) {
    return values.data() + static_cast<std::size_t>(op) * lanes;
  };
  std::vector<double> latest(lanes);
  for (const auto& [index, is_group] : order_.entries) {
    if (!is_group) {
      double* start = row(start_, index);
      std::fill_n(start, lanes, 0.0);
      for (const int before : graph_.waits_for[static_cast<std::size_t>(index)]) {
        const double* end = row(end_, before);
        for (std::size_t i = 0; i < lanes; ++i) start[i] = std::max(start[i], end[i]);
      }
      if (graph_.group_of[static_cast<std::size_t>(index)] >= 0) continue;
      const double* duration = durations.data() + static_cast<std::size_t>(index) * lanes;
      double* end = row(end_, index);
      for (std::size_t i = 0; i < lanes; ++i) end[i] = start[i] + duration[i];
      continue;
    }
    const StepGraph::Group& group = graph_.groups[static_cast<std::size_t>(index)];
    std::fill(latest.begin(), latest.end(), 0.0);
    for (const int op : group.ops) {
      const double* start = row(start_, op);
      for (std::size_t i = 0; i < lanes; ++i) latest[i] = std::max(latest[i], start[i]);
    }
    if (group.over_dp) {
      for (std::size_t first = 0; first < lanes; first += dp) {
        const auto begin = latest.begin() + static_cast<std::ptrdiff_t>(first);
        std::fill_n(begin, dp, *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(dp)));
      }
    }
    for (const int op : group.ops) {
      const double* duration = durations.data() + static_cast<std::size_t>(op) * lanes;
      double* end = row(end_, op);
      for (std::size_t i = 0; i < lanes; ++i) end[i] = latest[i] + duration[i];
    }
  }
  std::vector<double> seconds(trace_.steps.size(), 0.0);
  for (std::size_t op = 0; op < trace_.ops.size(); ++op) {
    if (trace_.ops[op].type != OpType::optimizer) continue;
    for (std::size_t i = 0; i < lanes; ++i) seconds[i / dp] = std::max(seconds[i / dp], end_[op * lanes + i]);
  }
  return seconds;
}

std::vector<double> transfer_durations(const StepTrace& trace, const StepGraph& graph) {
  const std::size_t lanes = trace.lanes(), dp = static_cast<std::size_t>(trace.dp);
  std::vector<double> durations = trace.duration_s;
  std::vector<double> latest(lanes);
  for (const StepGraph::Group& group : graph.groups) {
    for (std::size_t i = 0; i < lanes; ++i) {
      latest[i] = trace.start_s[static_cast<std::size_t>(group.ops.front()) * lanes + i];
      for (const int op : group.ops)
        latest[i] = std::max(latest[i], trace.start_s[static_cast<std::size_t>(op) * lanes + i]);
    }
    if (group.over_dp) {
      for (std::size_t first = 0; first < lanes; first += dp) {
        const auto begin = latest.begin() + static_cast<std::ptrdiff_t>(first);
        std::fill_n(begin, dp, *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(dp)));
      }
    }
    for (const int op : group.ops) {
      const std::size_t first = static_cast<std::size_t>(op) * lanes;
      for (std::size_t i = 0; i < lanes; ++i) {
        const double transfer = trace.start_s[first + i] + trace.duration_s[first + i] - latest[i];
        durations[first + i] = transfer <= -kClockErrorS ? 0 : transfer;
      }
    }
  }
  return durations;
}

}  // namespace ms::tracepp
