#include "tracepp/stragglers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace ms::tracepp {
namespace {

constexpr double kWorkersFixed = 0.03;  // of M_W

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// Every operation takes what its kind takes, over all ranks and steps: computations their mean, for work must be done
// by somebody; communications their median, for a slow link should not count.
std::vector<double> ideal_durations(const StepTrace& trace, const std::vector<double>& measured) {
  const std::size_t lanes = trace.lanes();
  std::vector<double> ideal(measured.size());
  for (int type = 0; type < kOpTypes; ++type) {
    std::vector<double> values;
    for (std::size_t op = 0; op < trace.ops.size(); ++op) {
      if (trace.ops[op].type != static_cast<OpType>(type)) continue;
      const auto first = measured.begin() + static_cast<std::ptrdiff_t>(op * lanes);
      values.insert(values.end(), first, first + static_cast<std::ptrdiff_t>(lanes));
    }
    if (values.empty()) continue;
    const double usual = is_communication(static_cast<OpType>(type)) ? median(values) : mean(values);
    for (std::size_t op = 0; op < trace.ops.size(); ++op) {
      if (trace.ops[op].type == static_cast<OpType>(type))
        std::fill_n(ideal.begin() + static_cast<std::ptrdiff_t>(op * lanes), lanes, usual);
    }
  }
  return ideal;
}

double measured_step_s(const StepTrace& trace) {
  double sum = 0;
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
    sum += end - begin;
  }
  return sum / static_cast<double>(trace.steps.size());
}

// Plays steps in which some operations take `these` durations and all others `those`.
class Mixture {
 public:
  Mixture(const StepTrace& trace, Replay& replay, const std::vector<double>& these, const std::vector<double>& those)
      : trace_(trace), replay_(replay), these_(these), those_(those) {}

  // chosen(op, dp rank): takes `these`. Returns mean seconds of a step.
  double operator()(const std::function<bool(const StepOp&, int)>& chosen) {
    mixed_ = those_;
    for (std::size_t op = 0; op < trace_.ops.size(); ++op) {
      for (int dp = 0; dp < trace_.dp; ++dp) {
        if (!chosen(trace_.ops[op], dp)) continue;
        for (std::size_t step = 0; step < trace_.steps.size(); ++step) {
          mixed_[trace_.at(op, step, dp)] = these_[trace_.at(op, step, dp)];
        }
      }
    }
    return mean(replay_.steps(mixed_));
  }

 private:
  const StepTrace& trace_;
  Replay& replay_;
  const std::vector<double>&these_, &those_;
  std::vector<double> mixed_;
};

}  // namespace

Stragglers find_stragglers(const StepTrace& trace) {
  Replay replay(trace);
  const std::vector<double> measured = transfer_durations(trace, replay.graph());
  const std::vector<double> ideal = ideal_durations(trace, measured);
  const std::vector<double> without_delays = replay.steps(measured), best = replay.steps(ideal);

  Stragglers found;
  found.measured_s = measured_step_s(trace);
  found.without_delays_s = mean(without_delays);
  found.ideal_s = mean(best);
  found.S = found.without_delays_s / found.ideal_s;
  found.launch_slowdown = found.measured_s / found.without_delays_s;
  for (std::size_t step = 0; step < best.size(); ++step) {
    found.step_slowdowns.push_back(without_delays[step] / best[step]);
  }

  Mixture slow(trace, replay, measured, ideal), fixed(trace, replay, ideal, measured);
  for (int dp = 0; dp < trace.dp; ++dp) {
    const double seconds = slow([&](const StepOp&, int rank) { return rank == dp; });
    found.by_dp.push_back({fmt::format("dp {}", dp), seconds / found.ideal_s});
  }
  for (int stage = 0; stage < trace.pp; ++stage) {
    const double seconds = slow([&](const StepOp& op, int) { return op.stage == stage; });
    found.by_stage.push_back({fmt::format("stage {}", stage), seconds / found.ideal_s});
  }
  for (int i = 0; i < kOpTypes; ++i) {
    const auto type = static_cast<OpType>(i);
    if (std::ranges::none_of(trace.ops, [&](const StepOp& op) { return op.type == type; })) continue;
    const double seconds = slow([&](const StepOp& op, int) { return op.type == type; });
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
    const auto is_slow = [&](const StepOp& op, int dp) {
      return std::any_of(found.workers.begin(), found.workers.begin() + static_cast<std::ptrdiff_t>(count),
                         [&](const Suspect& worker) { return worker.dp == dp && worker.pp == op.stage; });
    };
    found.M_W = (found.without_delays_s - fixed(is_slow)) / lost_s;
    found.M_S =
        (found.without_delays_s - fixed([&](const StepOp& op, int) { return op.stage == trace.pp - 1; })) / lost_s;
  }
  return found;
}

}  // namespace ms::tracepp
