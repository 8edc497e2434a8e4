#include "tracepp/findings/slow_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "tracepp/findings/work_diff.h"
#include "tracepp/steps/steps.h"

namespace ms::tracepp {
namespace {

constexpr double kMost = 0.5, kNearlyAll = 0.9;
constexpr double kSame = 0.01;  // of calls, FLOPs

std::string work_name(const std::string& name) { return plain_text(name, 80); }

struct Side {
  WorkTotals totals;
  std::size_t steps = 0;
  double flops = 0;  // of a step
};

Side side_of(const RunTrace& trace, const std::vector<std::size_t>& ranks) {
  Side side;
  add_work(trace, ranks, true, side.totals);
  for (const std::size_t r : ranks) side.steps += step_spans(trace.ranks[r], trace.infos).size();
  for (const auto& [name, op] : side.totals.ops) side.flops += op.flops / static_cast<double>(side.steps);
  return side;
}

// Returns others of the rank's stage, at most kOthers of them.
std::vector<std::size_t> others_of(const RunTrace& trace, std::size_t rank) {
  constexpr std::size_t kOthers = 4;
  std::vector<std::size_t> others, chosen;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r)
    if (r != rank && (!trace.has_mesh || trace.ranks[r].at.pp == trace.ranks[rank].at.pp)) others.push_back(r);
  for (std::size_t i = 0; i < std::min(kOthers, others.size()); ++i)
    chosen.push_back(others[i * others.size() / std::min(kOthers, others.size())]);
  return chosen;
}

// The time that a rank has more, in ms: calls that both make are longer; they are more; others make no such calls.
using Excess = std::array<double, 3>;

Excess excess_of(const NameDiff& name) {
  if (name.vanished() || name.appeared()) return {0, 0, name.ms.change()};
  const double by_calls = name.calls.change() * name.ms.before / name.calls.before;
  return {name.ms.change() - by_calls, by_calls, 0};
}

// Calls take longer than others' calls of the same names.
SlowWork longer_calls(const std::vector<NameDiff>& names, const NameDiff& most, double excess_ms, bool has_device,
                      double flops, double flops_of_others) {
  double before = 0, after = 0, longer = 0;
  for (const NameDiff& name : names) {
    before += name.ms.before;
    after += name.ms.after;
  }
  for (const NameDiff& name : names)
    if (name.ms.after * before > name.ms.before * (before + 0.5 * excess_ms)) longer += name.ms.after;
  SlowWork found{.is = SlowWork::Is::longer};
  if (longer >= kNearlyAll * after) {
    found.sentence =
        fmt::format("its {} take {:.2f} times as long", has_device ? "kernels" : "operators", after / before);
  } else {
    found.name = most.name;
    found.sentence = fmt::format("{} takes {:.2f} times as long", work_name(most.name),
                                 most.ms.after / most.calls.after * most.calls.before / most.ms.before);
  }
  if (flops_of_others <= 0) {
    found.sentence += " a call";
    found.hint = "record_shapes=True tells whether its inputs are larger, or its device is slower";
  } else if (flops > (1 + kSame) * flops_of_others) {
    found.is = SlowWork::Is::larger;
    found.sentence += fmt::format(": its shapes need {:.2f} times the FLOPs", flops / flops_of_others);
    found.hint = "give all ranks equal work: batches by the number of tokens, experts of equal load";
  } else if (flops > (1 - kSame) * flops_of_others && found.name.empty()) {
    found.is = SlowWork::Is::slower;
    found.sentence += " with the same shapes";
    found.hint = has_device
                     ? "its GPU is slower: clocks, power, temperature (nvidia-smi -q -d PERFORMANCE, ms-diag run)"
                     : "its processor is slower, or other processes use it";
  }
  return found;
}

}  // namespace

SlowWork find_slow_work(const RunTrace& trace, std::size_t rank, double least_ms) {
  const std::vector<std::size_t> others = others_of(trace, rank);
  if (others.empty()) return {};
  const Side before = side_of(trace, others), after = side_of(trace, {rank});
  if (before.steps == 0 || after.steps == 0) return {};
  const bool has_device = !after.totals.kernels.empty();
  const auto compared = [&](const std::map<std::string, WorkTotal> WorkTotals::*names) {
    return compare_names(before.totals.*names, before.steps, after.totals.*names, after.steps);
  };
  const std::vector<NameDiff> names = compared(has_device ? &WorkTotals::kernels : &WorkTotals::ops);
  Excess sum{};
  for (const NameDiff& name : names)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += excess_of(name)[i];
  const double all_ms = std::accumulate(sum.begin(), sum.end(), 0.0);
  const auto largest = static_cast<std::size_t>(std::ranges::max_element(sum) - sum.begin());
  if (all_ms <= 0 || all_ms < least_ms || sum[largest] < kMost * all_ms) return {};
  const NameDiff& most =
      *std::ranges::max_element(names, {}, [&](const NameDiff& name) { return excess_of(name)[largest]; });
  SlowWork found;
  if (largest == 0) {
    found = longer_calls(names, most, all_ms, has_device, after.flops, before.flops);
  } else {
    found = {.is = largest == 1 ? SlowWork::Is::more : SlowWork::Is::others, .name = most.name};
    found.sentence = fmt::format("it calls {} {:.4g} times a step, others {:.4g} times", work_name(most.name),
                                 most.calls.after, most.calls.before);
    const auto gone = std::ranges::find_if(names, [](const NameDiff& name) { return name.vanished(); });
    if (largest == 2 && gone != names.end())
      found.sentence += fmt::format("; they call {} ({:.3g} ms a step, here {:.3g} ms)", work_name(gone->name),
                                    gone->ms.before, most.ms.after);
  }
  const std::vector<NameDiff> lines = compared(&WorkTotals::lines);
  if (!lines.empty() && lines[0].ms.change() >= kMost * all_ms) {
    found.line = lines[0].name;
    found.sentence += " (" + work_name(lines[0].name) + ")";
  }
  return found;
}

}  // namespace ms::tracepp
