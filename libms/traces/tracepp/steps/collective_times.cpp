#include "tracepp/steps/collective_times.h"

#include <algorithm>
#include <limits>

namespace ms::tracepp {

void set_over_dp(StepTrace& steps, const DpOps& ops, int compute, bool gathers, std::size_t step,
                 const std::vector<double>& moved, double before_s) {
  const auto at = [&](int op, int dp) { return steps.at(static_cast<std::size_t>(op), step, dp); };
  double all = before_s, latest = 0, latest_beside = 0, latest_end = 0;
  for (const double seconds : moved) all += seconds;
  for (int dp = 0; dp < steps.dp; ++dp) {
    latest = std::max(latest, steps.start_s[at(ops.op, dp)]);
    latest_beside = std::max(latest_beside, steps.start_s[at(ops.beside, dp)]);
  }
  for (int dp = 0; dp < steps.dp; ++dp) {
    const double piece = compute < 0 ? 0 : steps.duration_s[at(compute, dp)] / static_cast<double>(moved.size());
    double sum = 0, longest = 0;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      sum += moved[gathers ? i : moved.size() - 1 - i];
      longest = std::max(longest, sum - static_cast<double>(i) * piece);
    }
    const std::size_t main = at(ops.op, dp), beside = at(ops.beside, dp);
    steps.duration_s[main] = latest + longest - steps.start_s[main];
    steps.duration_s[beside] = all - longest;
    if (gathers) {
      steps.start_s[beside] = latest + longest;
      latest_end = std::max(latest_end, latest + longest);
    } else {
      steps.duration_s[beside] += latest_beside - steps.start_s[beside];
    }
  }
  if (!gathers) return;
  // The rest of the gathers begins for all when the first part is over on the last of them.
  for (int dp = 0; dp < steps.dp; ++dp)
    steps.duration_s[at(ops.beside, dp)] += latest_end - steps.start_s[at(ops.beside, dp)];
}

void meet(StepTrace& steps, OpType type, std::size_t step, int first, int last, double moved) {
  if (moved == std::numeric_limits<double>::infinity()) return;
  double latest = -std::numeric_limits<double>::infinity();
  for (const bool is_second_time : {false, true}) {
    for (std::size_t op = 0; op < steps.ops.size(); ++op) {
      if (steps.ops[op].type != type) continue;
      for (int dp = first; dp < last; ++dp) {
        const std::size_t at = steps.at(op, step, dp);
        latest = std::max(latest, steps.start_s[at]);
        if (is_second_time) steps.duration_s[at] = latest + moved - steps.start_s[at];
      }
    }
  }
}

}  // namespace ms::tracepp
