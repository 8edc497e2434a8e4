#include "tracepp/findings/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/text.h"
#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

std::vector<std::string> differences(const RunTrace& a, const RunTrace& b) {
  std::vector<std::string> found;
  const auto text = [](const mesh::Mesh& m) { return fmt::format("dp {} pp {} tp {}", m.dp, m.pp, m.tp); };
  if (a.has_mesh && b.has_mesh && a.mesh != b.mesh)
    found.push_back(fmt::format("the mesh differs: {}, {}", text(a.mesh), text(b.mesh)));
  const auto number = [&](int of_a, int of_b, std::string_view things) {
    if (of_a > 0 && of_b > 0 && of_a != of_b)
      found.push_back(fmt::format("the number of {} differs: {}, {}", things, of_a, of_b));
  };
  const auto ranks = [](const RunTrace& trace) {
    return trace.world > 0 ? trace.world : static_cast<std::int64_t>(trace.ranks.size());
  };
  if (!(a.has_mesh && b.has_mesh) && ranks(a) != ranks(b))
    found.push_back(fmt::format("the number of ranks differs: {}, {}", ranks(a), ranks(b)));
  number(a.microbatches, b.microbatches, "microbatches");
  number(a.chunks, b.chunks, "chunks");
  if (a.flops_per_step > 0 && b.flops_per_step > 0 &&
      std::abs(a.flops_per_step - b.flops_per_step) > 1e-6 * a.flops_per_step)
    found.push_back(fmt::format("a step does not compute the same: {} and {} FLOPs", format_count(a.flops_per_step),
                                format_count(b.flops_per_step)));
  if (a.source != b.source)
    found.push_back(fmt::format("not the same program wrote the traces: {}, {}", plain_text(a.source->name, 32),
                                plain_text(b.source->name, 32)));
  return found;
}

double mean_s(std::int64_t sum_ns, std::size_t count) {
  return count == 0 ? 0 : 1e-9 * static_cast<double>(sum_ns) / static_cast<double>(count);
}

double median_step_s(const Breakdown& breakdown) {
  std::vector<double> lengths_s;
  for (const StepTime& step : breakdown.steps) lengths_s.push_back(1e-9 * static_cast<double>(step.length_ns));
  return median(lengths_s);
}

void compare_steps(const Breakdown& before, const Breakdown& after, Diff& diff) {
  const StepTime a = sum_of(before.steps), b = sum_of(after.steps);
  const std::size_t count_a = before.steps.size(), count_b = after.steps.size();
  const auto both = [&](std::int64_t of_a, std::int64_t of_b) {
    return BeforeAfter{mean_s(of_a, count_a), mean_s(of_b, count_b)};
  };
  diff.median_step_s = {median_step_s(before), median_step_s(after)};
  diff.mean_step_s = both(a.length_ns, b.length_ns);
  diff.parts = {{"busy", both(a.busy_ns, b.busy_ns)},
                {"stalled", both(a.stalled_other_ns, b.stalled_other_ns)},
                {"copying", both(a.copy_ns, b.copy_ns)},
                {"save", both(a.save_ns, b.save_ns)},
                {"data wait", both(a.data_wait_ns, b.data_wait_ns)},
                {"idle", both(a.idle_ns, b.idle_ns)}};
  for (const GroupAxis axis : kWaitOrder) {
    const AxisTime &of_a = a.axis(axis), &of_b = b.axis(axis);
    if (of_a.total_ns == 0 && of_b.total_ns == 0) continue;
    diff.parts.push_back({fmt::format("waiting for {}", to_string(axis)), both(of_a.waiting_ns, of_b.waiting_ns)});
    diff.axes.push_back({axis, both(of_a.total_ns, of_b.total_ns), both(of_a.exposed_ns, of_b.exposed_ns)});
  }
  std::ranges::stable_sort(diff.parts, std::greater<>{}, [](const PartDiff& p) { return std::abs(p.s.change()); });
}

void compare_kinds(const Analysed& before, const Analysed& after, Diff& diff) {
  std::map<std::pair<Kind, Purpose>, BeforeAfter> kinds;
  const auto add = [&](const Analysed& run, double BeforeAfter::*side) {
    const std::size_t count = run.breakdown.kinds.size(), steps = run.breakdown.steps.size();
    for (std::size_t i = 0; i < run.breakdown.kind_times.size(); ++i) {
      const KindOfWork& work = run.breakdown.kinds[i % count];
      kinds[{work.kind, work.purpose}].*side += mean_s(run.breakdown.kind_times[i].time_ns, steps);
    }
  };
  add(before, &BeforeAfter::before);
  add(after, &BeforeAfter::after);
  for (const auto& [kind, s] : kinds) diff.kinds.push_back({{kind.first, kind.second}, s});
  std::ranges::stable_sort(diff.kinds, std::greater<>{}, [](const KindDiff& k) { return std::abs(k.s.change()); });
}

using ClassKey = std::tuple<GroupAxis, Kind, Purpose, std::int64_t, int, bool>;

// Returns the transfer time in seconds and the bus bandwidth of each class, as medians over its groups.
std::map<ClassKey, std::pair<double, double>> transfers(const CommReport& report) {
  std::map<ClassKey, std::pair<std::vector<double>, std::vector<double>>> samples;
  for (const CommRow& row : report.rows) {
    if (row.complete == 0) continue;
    const CommClass& c = report.classes[row.of_class];
    auto& [transfers_s, bandwidths] = samples[{c.axis, c.kind, c.purpose, c.size_bytes, c.members, c.one_host}];
    transfers_s.push_back(row.transfer_p50_s);
    bandwidths.push_back(row.bus_bandwidth);
  }
  std::map<ClassKey, std::pair<double, double>> medians;
  for (auto& [key, both] : samples) medians[key] = {median(both.first), median(both.second)};
  return medians;
}

void compare_communication(const CommReport& before, const CommReport& after, Diff& diff) {
  const auto of_before = transfers(before), of_after = transfers(after);
  for (const auto& [key, a] : of_before) {
    const auto found = of_after.find(key);
    if (found == of_after.end()) continue;
    const auto& [axis, kind, purpose, size_bytes, members, one_host] = key;
    const auto& [transfer_s, bandwidth] = found->second;
    diff.comms.push_back(
        {{axis, kind, purpose, size_bytes, members, one_host}, {a.first, transfer_s}, {a.second, bandwidth}});
  }
  std::ranges::stable_sort(diff.comms, std::greater<>{}, [](const CommDiff& m) {
    return m.transfer_s.before > 0 && m.transfer_s.after > 0
               ? std::abs(std::log(m.transfer_s.after / m.transfer_s.before))
               : 0.0;
  });
}

void compare_ranks(const Analysed& before, const Analysed& after, Diff& diff) {
  std::vector<double> ratios;
  const auto busy_s = [](const Breakdown& breakdown, std::size_t rank) {
    const std::span<const StepTime> steps = breakdown.of_rank(rank);
    return mean_s(sum_of(steps).busy_ns, steps.size());
  };
  for (std::size_t r = 0; r < before.trace.ranks.size(); ++r) {
    const RankTrace* other = after.trace.rank(before.trace.ranks[r].rank);
    if (other == nullptr) continue;
    const auto at = static_cast<std::size_t>(other - after.trace.ranks.data());
    RankDiff rank{before.trace.ranks[r].rank, {busy_s(before.breakdown, r), busy_s(after.breakdown, at)}, 1};
    if (rank.busy_s.before <= 0 || rank.busy_s.after <= 0) continue;
    rank.ratio = rank.busy_s.after / rank.busy_s.before;
    ratios.push_back(rank.ratio);
    diff.ranks.push_back(rank);
  }
  const double usual = median(ratios);
  for (RankDiff& rank : diff.ranks) rank.ratio /= usual;
  std::ranges::stable_sort(diff.ranks, std::greater<>{}, [](const RankDiff& r) { return std::abs(std::log(r.ratio)); });
}

}  // namespace

Diff compare(const Analysed& before, const Analysed& after) {
  Diff diff;
  diff.not_comparable = differences(before.trace, after.trace);
  if (before.breakdown.steps.empty() || after.breakdown.steps.empty())
    diff.not_comparable.emplace_back(before.breakdown.steps.empty() ? "the first run has no finished step"
                                                                    : "the second run has no finished step");
  const auto has_marks = [](const Breakdown& run) {
    return std::ranges::any_of(run.steps, [](const StepTime& step) { return step.step != kNoStep; });
  };
  bool is_marked = true;
  for (const auto& [run, which] : {std::pair(&before, "first"), std::pair(&after, "second")}) {
    if (run->breakdown.steps.empty() || has_marks(run->breakdown)) continue;
    is_marked = false;
    diff.not_comparable.push_back(
        run->trace.source->is_dump
            ? fmt::format("the {} run is dumps of the Flight Recorder, which know no steps", which)
            : fmt::format("nothing tells where steps of the {} run begin: call step() of torch.profiler.profile in "
                          "every step, or mark steps as ProfilerStep#N",
                          which));
  }
  if (!is_marked) return diff;
  compare_steps(before.breakdown, after.breakdown, diff);
  compare_kinds(before, after, diff);
  compare_communication(before.comms, after.comms, diff);
  compare_ranks(before, after, diff);
  return diff;
}

}  // namespace ms::tracepp
