#include "tracepp/findings/work_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "tracepp/steps/host_threads.h"

namespace ms::tracepp {
namespace {

// "train.py(212): step" -> "train.py: step".
std::string without_number(std::string_view line) {
  const std::size_t open = line.find(".py("), close = line.find("): ", open);
  if (open == std::string_view::npos || close == std::string_view::npos) return std::string(line);
  return std::string(line.substr(0, open + 3)) + std::string(line.substr(close + 1));
}

std::string class_of(const PathWork& work) {
  const bool is_host = work.of == PathOf::host && work.place.cause != IdleCause::late;
  return std::string(is_host ? to_string(work.place.cause) : to_string(work.of));
}

std::string name_of(const RunTrace& trace, const PathWork& work) {
  if (work.of != PathOf::host && work.of != PathOf::launch) return std::string(trace.strings.text(work.name));
  std::string name;
  const auto add = [&](std::string_view between, std::string text) {
    if (text.empty()) return;
    name += name.empty() ? "" : between;
    name += text;
  };
  const IdlePlace& place = work.place;
  add("", std::string(trace.strings.text(place.op != 0 ? place.op : place.call)));
  add(" below ", without_number(trace.strings.text(place.below)));
  add(" in ", without_number(trace.strings.text(place.line)));
  return name;
}

// Totals by string of the trace.
struct WorkIds {
  std::unordered_map<std::uint32_t, WorkTotal> kernels, ops, lines;
  std::unordered_map<std::uint32_t, std::uint32_t> above;
};

void add_rank(const RunTrace& trace, const RankTrace& rank, const HostThreads& host, bool one_run, WorkIds& ids) {
  const auto name = [&](std::uint32_t event) { return trace.info(rank.events[event]).name; };
  std::vector<std::uint32_t> seen;
  // Adds work below the operators around an event, each name once, and the innermost line.
  const auto add = [&](std::uint32_t below, std::int64_t time_ns) {
    seen.clear();
    for (std::uint32_t at = below; at != kAbsentEvent; at = host.around(at)) {
      if (host.role(at) != HostRole::op || std::ranges::find(seen, name(at)) != seen.end()) continue;
      seen.push_back(name(at));
      ids.ops[name(at)].time_ns += time_ns;
    }
    const IdlePlace place = host.place(below, IdleCause::late);
    if (place.line == 0) return;
    WorkTotal& line = ids.lines[place.line];
    ++line.calls;
    line.time_ns += time_ns;
  };
  std::size_t launch = 0;
  for (std::uint32_t i = 0; i < rank.events.size(); ++i) {
    const Event& event = rank.events[i];
    const EventInfo& info = trace.info(event);
    if (event.state != State::ended || (one_run && trace::is_comm(info.kind))) continue;
    if (is_device_work(info)) {
      while (launch < rank.launches.size() && rank.launches[launch].event < i) ++launch;
      const bool is_linked = launch < rank.launches.size() && rank.launches[launch].event == i;
      const std::uint32_t call = is_linked ? rank.launches[launch].call : kAbsentEvent;
      if ((is_linked ? rank.events[call].step : event.step) == kNoStep) continue;
      WorkTotal& kernel = ids.kernels[info.name];
      ++kernel.calls;
      kernel.time_ns += event.duration_ns;
      if (is_linked) add(call, event.duration_ns);
    } else if (host.role(i) == HostRole::op && event.step != kNoStep) {
      WorkTotal& op = ids.ops[info.name];
      ++op.calls;
      op.flops += info.flops;
      std::uint32_t above = host.around(i);
      while (above != kAbsentEvent && host.role(above) != HostRole::op) above = host.around(above);
      ids.above.try_emplace(info.name, above == kAbsentEvent ? 0 : name(above));
      // Without a device, operators are the work.
      if (host.has_device()) continue;
      if (above == kAbsentEvent) {
        add(i, event.duration_ns);
      } else {
        op.time_ns += event.duration_ns;
      }
    }
  }
}

using Totals = std::map<std::string, WorkTotal>;

// Pairs operators that vanished with those that appeared below the same operator, which both runs call.
std::vector<OpSwap> find_swaps(const WorkDiff& diff, const WorkTotals& before, const WorkTotals& after) {
  std::map<std::string, OpSwap> by_above;
  for (const NameDiff& op : diff.ops) {
    if (!op.vanished() && !op.appeared()) continue;
    const WorkTotals& run = op.vanished() ? before : after;
    const auto above = run.above.find(op.name);
    if (above == run.above.end() || !before.ops.contains(above->second) || !after.ops.contains(above->second)) continue;
    OpSwap& swap = by_above.try_emplace(above->second, OpSwap{.above = above->second}).first->second;
    NameDiff& side = op.vanished() ? swap.before : swap.after;
    if (side.name.empty() || std::max(side.ms.before, side.ms.after) < std::max(op.ms.before, op.ms.after)) side = op;
  }
  std::vector<OpSwap> swaps;
  for (auto& [above, swap] : by_above)
    if (!swap.before.name.empty() && !swap.after.name.empty()) swaps.push_back(std::move(swap));
  std::ranges::stable_sort(swaps, std::greater<>{}, [](const OpSwap& s) { return std::abs(s.change_ms()); });
  return swaps;
}

std::vector<PathDiff> compare_paths(const WorkTotals& before, const WorkTotals& after, bool by_name) {
  struct Sides {
    BeforeAfter ms;
    std::map<int, std::int64_t> ranks_before, ranks_after;
  };
  std::map<std::pair<std::string, std::string>, Sides> rows;
  const auto add = [&](const WorkTotals& run, double BeforeAfter::*side, std::map<int, std::int64_t> Sides::*ranks) {
    for (const auto& [key, by_rank] : run.path) {
      Sides& row = rows[{key.first, by_name ? key.second : ""}];
      for (const auto& [rank, ns] : by_rank) {
        row.ms.*side += 1e-6 * static_cast<double>(ns) / static_cast<double>(run.steps);
        (row.*ranks)[rank] += ns;
      }
    }
  };
  add(before, &BeforeAfter::before, &Sides::ranks_before);
  add(after, &BeforeAfter::after, &Sides::ranks_after);
  std::vector<PathDiff> found;
  for (const auto& [key, row] : rows) {
    const auto& ranks = row.ms.change() >= 0 ? row.ranks_after : row.ranks_before;
    const auto most = std::ranges::max_element(ranks, {}, [](const auto& rank) { return rank.second; });
    found.push_back({key.first, key.second, row.ms, most == ranks.end() ? -1 : most->first});
  }
  std::ranges::stable_sort(found, std::greater<>{}, [](const PathDiff& d) { return std::abs(d.ms.change()); });
  return found;
}

}  // namespace

std::pair<std::string, std::string> path_key(const RunTrace& trace, const PathWork& work) {
  return {class_of(work), name_of(trace, work)};
}

std::vector<NameDiff> compare_names(const Totals& before, std::size_t steps_before, const Totals& after,
                                    std::size_t steps_after) {
  std::map<std::string, NameDiff> names;
  const auto add = [&](const Totals& totals, std::size_t steps, double BeforeAfter::*side) {
    for (const auto& [name, total] : totals) {
      NameDiff& diff = names.try_emplace(name, NameDiff{.name = name}).first->second;
      diff.calls.*side = static_cast<double>(total.calls) / static_cast<double>(steps);
      diff.ms.*side = 1e-6 * static_cast<double>(total.time_ns) / static_cast<double>(steps);
    }
  };
  add(before, steps_before, &BeforeAfter::before);
  add(after, steps_after, &BeforeAfter::after);
  std::vector<NameDiff> found;
  for (auto& [name, diff] : names) found.push_back(std::move(diff));
  std::ranges::stable_sort(found, std::greater<>{}, [](const NameDiff& d) { return std::abs(d.ms.change()); });
  return found;
}

void add_work(const RunTrace& trace, std::span<const std::size_t> ranks, bool one_run, WorkTotals& totals) {
  const std::vector<HostRole> roles = host_roles(trace);
  WorkIds ids;
  for (const std::size_t r : ranks)
    add_rank(trace, trace.ranks[r], HostThreads(trace, roles, trace.ranks[r]), one_run, ids);
  const auto text = [&](std::uint32_t id) { return std::string(trace.strings.text(id)); };
  for (const auto& [of, into] : {std::pair(&ids.kernels, &totals.kernels), std::pair(&ids.ops, &totals.ops),
                                 std::pair(&ids.lines, &totals.lines)}) {
    for (const auto& [id, total] : *of) {
      WorkTotal& sum = (*into)[of == &ids.lines && !one_run ? without_number(text(id)) : text(id)];
      sum.calls += total.calls;
      sum.time_ns += total.time_ns;
      sum.flops += total.flops;
    }
  }
  for (const auto& [id, above] : ids.above) totals.above.try_emplace(text(id), text(above));
}

WorkTotals work_totals(const RunTrace& trace, const DevicePaths& paths, std::size_t rank_steps) {
  WorkTotals totals{.unknown = paths.unknown, .steps = paths.steps.size(), .rank_steps = rank_steps};
  if (totals.unknown.empty() && (totals.steps == 0 || rank_steps == 0)) totals.unknown = "no finished step";
  if (!totals.unknown.empty()) return totals;
  std::vector<std::size_t> all(trace.ranks.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  add_work(trace, all, false, totals);
  for (const DevicePath& step : paths.steps) {
    for (const DevicePiece& piece : step.pieces)
      totals.path[path_key(trace, piece.work)][trace.ranks[piece.rank].rank] += piece.end_ns - piece.begin_ns;
  }
  return totals;
}

WorkDiff compare_work(const WorkTotals& before, const WorkTotals& after) {
  WorkDiff diff{.unknown = before.unknown.empty() ? after.unknown : before.unknown};
  if (!diff.unknown.empty()) return diff;
  diff.path = compare_paths(before, after, true);
  diff.classes = compare_paths(before, after, false);
  for (const PathDiff& part : diff.classes) {
    diff.step_ms.before += part.ms.before;
    diff.step_ms.after += part.ms.after;
    if (part.of == to_string(PathOf::unknown)) diff.unattributed_ms = part.ms.change();
  }
  diff.kernels = compare_names(before.kernels, before.rank_steps, after.kernels, after.rank_steps);
  diff.ops = compare_names(before.ops, before.rank_steps, after.ops, after.rank_steps);
  diff.lines = compare_names(before.lines, before.rank_steps, after.lines, after.rank_steps);
  diff.swaps = find_swaps(diff, before, after);
  return diff;
}

}  // namespace ms::tracepp
