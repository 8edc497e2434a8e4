#include "tracepp/steps/replay.h"

#include <algorithm>

#include "base/error.h"
#include "tracepp/parallel.h"

namespace ms::tracepp {
namespace {

// The error of clocks of different nodes. A transfer that ends earlier than it can by more than this is not believed.
constexpr double kClockErrorS = 10e-3;
// Replaying fewer values than this is faster than starting a thread.
constexpr std::size_t kWorthThreads = 200'000;

// Calls body(begin, end) for blocks of the trace's steps.
template <class Body>
void in_blocks_of_steps(const StepTrace& trace, const Body& body) {
  if (trace.ops.size() * trace.lanes() < kWorthThreads) {
    body(std::size_t{0}, trace.steps.size());
  } else {
    in_blocks(trace.steps.size(), body);
  }
}

}  // namespace

// The buffers in which one step is replayed: a lane for each dp rank and, with others, as many again for the ranks that
// replace the others.
struct Replay::Scratch {
  Scratch(std::size_t ops, std::size_t lanes) : width(lanes), start(ops * lanes), end(ops * lanes), latest(lanes) {}
  std::size_t width;
  std::vector<double> start, end;  // [op][lane]; starts of what has a group only
  std::vector<double> latest;      // [lane]
};

Replay::Replay(const StepTrace& trace) : trace_(trace), graph_(make_step_graph(trace)), order_(order_of(graph_)) {}

void Replay::play(Scratch& scratch, std::size_t step, const Rows& rows, const std::vector<double>* others) const {
  const std::size_t width = scratch.width, dp = static_cast<std::size_t>(trace_.dp), first = step * dp;
  const auto row = [&](std::vector<double>& values, int op) {
    return values.data() + static_cast<std::size_t>(op) * width;
  };
  const auto add = [&](double* end, const double* start, std::size_t op) {
    const double* duration = rows[op] + first;
    for (std::size_t i = 0; i < dp; ++i) end[i] = start[i] + duration[i];
    for (std::size_t i = dp; i < width; ++i) end[i] = start[i] + (*others)[op];
  };
  double* latest = scratch.latest.data();
  for (const auto& [index, is_group] : order_.entries) {
    if (!is_group) {
      const auto op = static_cast<std::size_t>(index);
      const bool has_group = graph_.group_of[op] >= 0;
      double* start = has_group ? row(scratch.start, index) : row(scratch.end, index);
      std::fill_n(start, width, 0.0);
      for (const int before : graph_.waits_for[op]) {
        const double* end = row(scratch.end, before);
        for (std::size_t i = 0; i < width; ++i) start[i] = std::max(start[i], end[i]);
      }
      if (!has_group) add(start, start, op);
      continue;
    }
    const StepGraph::Group& group = graph_.groups[static_cast<std::size_t>(index)];
    std::fill_n(latest, width, 0.0);
    for (const int op : group.ops) {
      const double* start = row(scratch.start, op);
      for (std::size_t i = 0; i < width; ++i) latest[i] = std::max(latest[i], start[i]);
    }
    if (group.over_dp && others == nullptr) {
      std::fill_n(latest, width, *std::max_element(latest, latest + width));
    } else if (group.over_dp) {
      for (std::size_t i = 0; i < dp; ++i) latest[i] = latest[dp + i] = std::max(latest[i], latest[dp + i]);
    }
    for (const int op : group.ops) add(row(scratch.end, op), latest, static_cast<std::size_t>(op));
  }
}

std::vector<double> Replay::steps(const Rows& rows) const {
  MS_ASSERT(rows.size() == trace_.ops.size(), "{} rows for {} operations", rows.size(), trace_.ops.size());
  std::vector<double> seconds(trace_.steps.size(), 0.0);
  in_blocks_of_steps(trace_, [&](std::size_t begin, std::size_t end) {
    Scratch scratch(trace_.ops.size(), static_cast<std::size_t>(trace_.dp));
    for (std::size_t step = begin; step < end; ++step) {
      play(scratch, step, rows, nullptr);
      for (std::size_t op = 0; op < trace_.ops.size(); ++op) {
        if (trace_.ops[op].type != OpType::optimizer) continue;
        const double* ends = scratch.end.data() + op * scratch.width;
        seconds[step] = std::max(seconds[step], *std::max_element(ends, ends + scratch.width));
      }
    }
  });
  return seconds;
}

std::vector<double> Replay::steps(const std::vector<double>& durations) const {
  return steps(rows_of(trace_, durations));
}

std::vector<double> Replay::steps_alone(const Rows& rows, const std::vector<double>& others) const {
  const std::size_t dp = static_cast<std::size_t>(trace_.dp);
  if (dp == 1) return steps(rows);  // there are no others
  std::vector<double> seconds(trace_.lanes(), 0.0);
  in_blocks_of_steps(trace_, [&](std::size_t begin, std::size_t end) {
    Scratch scratch(trace_.ops.size(), 2 * dp);
    for (std::size_t step = begin; step < end; ++step) {
      play(scratch, step, rows, &others);
      for (std::size_t op = 0; op < trace_.ops.size(); ++op) {
        if (trace_.ops[op].type != OpType::optimizer) continue;
        const double* ends = scratch.end.data() + op * scratch.width;
        double* longest = seconds.data() + step * dp;
        for (std::size_t i = 0; i < dp; ++i) longest[i] = std::max({longest[i], ends[i], ends[dp + i]});
      }
    }
  });
  return seconds;
}

Replay::Rows rows_of(const StepTrace& trace, const std::vector<double>& durations) {
  MS_ASSERT(durations.size() == trace.ops.size() * trace.lanes(), "{} durations of {}", durations.size(),
            trace.ops.size() * trace.lanes());
  Replay::Rows rows(trace.ops.size());
  for (std::size_t op = 0; op < rows.size(); ++op) rows[op] = durations.data() + op * trace.lanes();
  return rows;
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
