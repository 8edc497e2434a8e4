#include "tracepp/findings/stragglers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "tracepp/parallel.h"
#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr double kWorkersFixed = 0.03;  // of M_W

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Returns the ideal duration of each operation type, over all ranks and steps. Computations take their mean, since the
// work must be done by somebody; communications take their median, so that a slow link does not count.
std::vector<double> ideal_durations(const StepTrace& trace, const std::vector<double>& measured) {
  const std::size_t lanes = trace.lanes();
  std::vector<double> ideal(kOpTypes, 0.0);
  in_blocks(kOpTypes, [&](std::size_t begin, std::size_t end) {
    for (std::size_t type = begin; type < end; ++type) {
      std::vector<double> values;
      for (std::size_t op = 0; op < trace.ops.size(); ++op) {
        if (trace.ops[op].type != static_cast<OpType>(type)) continue;
        const auto first = measured.begin() + static_cast<std::ptrdiff_t>(op * lanes);
        values.insert(values.end(), first, first + static_cast<std::ptrdiff_t>(lanes));
      }
      if (!values.empty()) ideal[type] = is_communication(static_cast<OpType>(type)) ? median(values) : mean(values);
    }
  });
  return ideal;
}

std::vector<double> step_spans_s(const StepTrace& trace) {
  std::vector<double> spans_s;
  for (std::size_t step = 0; step < trace.steps.size(); ++step) {
    double begin = 0, end = 0;
    for (std::size_t op = 0; op < trace.ops.size(); ++op) {
      for (int dp = 0; dp < trace.dp; ++dp) {
        const std::size_t i = trace.at(op, step, dp);
        const double start = trace.start_s[i], stop = start + trace.duration_s[i];
        begin = op == 0 && dp == 0 ? start : std::min(begin, start);
        end = op == 0 && dp == 0 ? stop : std::max(end, stop);
      }
    }
    spans_s.push_back(end - begin);
  }
  return spans_s;
}

}  // namespace

WhatIf::WhatIf(const StepTrace& trace)
    : trace_(trace),
      replay_(trace),
      measured_(transfer_durations(trace, replay_.graph())),
      ideal_(ideal_durations(trace, measured_)) {
  for (const double ideal : ideal_) ideal_rows_.emplace_back(trace.lanes(), ideal);
  measured_steps_ = replay_.steps(measured_);
  Replay::Rows rows;
  for (const StepOp& op : trace.ops) rows.push_back(ideal_rows_[static_cast<std::size_t>(op.type)].data());
  ideal_steps_ = replay_.steps(rows);
  measured_s_ = mean(measured_steps_);
  ideal_s_ = mean(ideal_steps_);
}

double WhatIf::mean_s(bool chosen_ideal, const std::function<bool(const StepOp&)>& chosen) const {
  Replay::Rows rows = rows_of(trace_, measured_);
  for (std::size_t op = 0; op < rows.size(); ++op) {
    if (chosen(trace_.ops[op]) == chosen_ideal)
      rows[op] = ideal_rows_[static_cast<std::size_t>(trace_.ops[op].type)].data();
  }
  return mean(replay_.steps(rows));
}

double WhatIf::with_ideal(const std::function<bool(const StepOp&)>& chosen) const { return mean_s(true, chosen); }
double WhatIf::with_measured(const std::function<bool(const StepOp&)>& chosen) const { return mean_s(false, chosen); }

double WhatIf::with_ideal_workers(const std::vector<Suspect>& workers) const {
  std::vector<double> mixed = measured_;
  for (std::size_t op = 0; op < trace_.ops.size(); ++op) {
    for (const Suspect& worker : workers) {
      if (worker.pp != trace_.ops[op].stage) continue;
      for (std::size_t step = 0; step < trace_.steps.size(); ++step)
        mixed[trace_.at(op, step, worker.dp)] = ideal(trace_.ops[op].type);
    }
  }
  return mean(replay_.steps(mixed));
}

double WhatIf::with_scaled(const std::function<bool(const StepOp&)>& chosen,
                           const std::function<double(std::size_t, std::size_t, int)>& factor) const {
  Replay::Rows rows = rows_of(trace_, measured_);
  std::vector<std::vector<double>> changed;
  for (std::size_t op = 0; op < rows.size(); ++op) {
    if (!chosen(trace_.ops[op])) continue;
    std::vector<double>& row = changed.emplace_back(rows[op], rows[op] + trace_.lanes());
    for (std::size_t step = 0; step < trace_.steps.size(); ++step) {
      for (int dp = 0; dp < trace_.dp; ++dp) row[trace_.at(0, step, dp)] *= factor(op, step, dp);
    }
    rows[op] = row.data();
  }
  return mean(replay_.steps(rows));
}

std::vector<double> WhatIf::alone() const {
  const auto dp = static_cast<std::size_t>(trace_.dp);
  std::vector<double> others;
  for (const StepOp& op : trace_.ops) others.push_back(ideal(op.type));
  const std::vector<double> seconds = replay_.steps_alone(rows_of(trace_, measured_), others);
  std::vector<double> means(dp, 0.0);
  for (std::size_t i = 0; i < seconds.size(); ++i) means[i % dp] += seconds[i];
  for (double& sum : means) sum /= static_cast<double>(trace_.steps.size());
  return means;
}

Stragglers find_stragglers(const WhatIf& what_if) {
  const StepTrace& trace = what_if.trace();
  Stragglers found;
  found.step_spans_s = step_spans_s(trace);
  found.measured_s = mean(found.step_spans_s);
  found.without_delays_s = what_if.measured_s();
  found.ideal_s = what_if.ideal_s();
  found.S = found.without_delays_s / found.ideal_s;
  found.launch_slowdown = found.measured_s / found.without_delays_s;
  for (std::size_t step = 0; step < trace.steps.size(); ++step)
    found.step_slowdowns.push_back(what_if.measured_steps()[step] / what_if.ideal_steps()[step]);

  const std::vector<double> alone = what_if.alone();
  for (std::size_t dp = 0; dp < alone.size(); ++dp) {
    found.by_dp.push_back({fmt::format("dp {}", trace.dp_rank(static_cast<int>(dp))), alone[dp] / found.ideal_s});
  }
  for (int stage = 0; stage < trace.pp; ++stage) {
    const double seconds = what_if.with_measured([&](const StepOp& op) { return op.stage == stage; });
    found.by_stage.push_back({fmt::format("stage {}", stage), seconds / found.ideal_s});
  }
  for (int i = 0; i < kOpTypes; ++i) {
    const auto type = static_cast<OpType>(i);
    if (std::ranges::none_of(trace.ops, [&](const StepOp& op) { return op.type == type; })) continue;
    const double seconds = what_if.with_measured([&](const StepOp& op) { return op.type == type; });
    found.by_type.push_back({std::string(to_string(type)), seconds / found.ideal_s});
  }
  std::ranges::stable_sort(found.by_type, std::ranges::greater{}, &Contribution::slowdown);

  for (int stage = 0; stage < trace.pp; ++stage) {
    for (int dp = 0; dp < trace.dp; ++dp) {
      found.workers.push_back({.rank = trace.ranks[static_cast<std::size_t>(stage * trace.dp + dp)],
                               .dp = dp,
                               .pp = stage,
                               .score = std::min(found.by_dp[static_cast<std::size_t>(dp)].slowdown,
                                                 found.by_stage[static_cast<std::size_t>(stage)].slowdown)});
    }
  }
  std::ranges::stable_sort(found.workers, std::ranges::greater{}, &Suspect::score);

  const double lost_s = found.without_delays_s - found.ideal_s;
  if (lost_s > 0) {
    const auto count = static_cast<std::size_t>(std::ceil(kWorkersFixed * static_cast<double>(found.workers.size())));
    const std::vector<Suspect> slowest(found.workers.begin(),
                                       found.workers.begin() + static_cast<std::ptrdiff_t>(count));
    found.M_W = (found.without_delays_s - what_if.with_ideal_workers(slowest)) / lost_s;
    found.M_S =
        (found.without_delays_s - what_if.with_ideal([&](const StepOp& op) { return op.stage == trace.pp - 1; })) /
        lost_s;
  }
  return found;
}

Stragglers find_stragglers(const StepTrace& trace) { return find_stragglers(WhatIf(trace)); }

}  // namespace ms::tracepp
