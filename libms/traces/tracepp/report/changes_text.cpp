// Implements the part of text.h on communication, the critical path and change points. text.cpp and diff_text.cpp have
// the rest.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostChanges = 12;

double relative(double before, double after) { return before == 0 ? 0 : after / before - 1; }

std::string step_text(std::int32_t step) { return step == kNoStep ? "?" : std::to_string(step); }

std::string and_more(std::size_t count, std::size_t shown) {
  return count > shown ? fmt::format("and {} more\n", count - shown) : "";
}

std::string suspects_text(const RunTrace& trace, const CommReport& report) {
  if (report.suspects.empty()) return "no group is slower than others of its kind\n";
  TextTable table(columns("slow group|communication|size>|transfer us>|times the usual>"));
  for (std::size_t i = 0; i < std::min(report.suspects.size(), kMostChanges); ++i) {
    const CommRow& row = report.rows[report.suspects[i]];
    const CommClass& c = report.classes[row.of_class];
    table.row({plain_text(trace.groups[static_cast<std::size_t>(row.group)].name, 64), work_text({c.kind, c.purpose}),
               size_text(c.size_bytes), us_text(row.transfer_p50_s), fmt::format("{:.2f}", row.ratio)});
  }
  return table.str() + and_more(report.suspects.size(), kMostChanges);
}

std::string edges_text(const CommReport& report) {
  if (report.edges.empty()) return "";
  TextTable table(columns("stages|purpose|channels>|transfer p50 us>|p99>|GB/s>|times the usual>"));
  for (const EdgeSummary& edge : report.edges) {
    table.row({fmt::format("{}>{}", edge.from_stage, edge.to_stage), std::string(to_string(edge.purpose)),
               std::to_string(edge.channels), us_text(edge.transfer_p50_s), us_text(edge.transfer_p99_s),
               gb_text(edge.bus_bandwidth), fmt::format("{:.2f}", edge.ratio)});
  }
  return "\n" + table.str();
}

std::string lateness_text(const RunTrace& trace, const CommReport& report) {
  std::vector<std::size_t> order(report.by_rank.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t r) { return report.by_rank[r].caused_ns == 0; });
  std::ranges::stable_sort(order, std::greater<>{}, [&](std::size_t r) { return report.by_rank[r].caused_ns; });
  if (order.empty()) return "";
  TextTable table(columns("last to come|collectives>|last>|others waited>|waited itself>"));
  constexpr std::size_t kMost = 5;
  for (std::size_t i = 0; i < std::min(order.size(), kMost); ++i) {
    const Lateness& late = report.by_rank[order[i]];
    table.row({rank_text(trace, order[i]), std::to_string(late.collectives), std::to_string(late.last),
               format_duration(1e-9 * static_cast<double>(late.caused_ns)),
               format_duration(1e-9 * static_cast<double>(late.waited_ns))});
  }
  return "\n" + table.str();
}

std::string change_text(const PartChange& change) {
  return fmt::format("{} {} -> {}", to_string(change.part), format_duration(change.before_s),
                     format_duration(change.after_s));
}

}  // namespace

std::string class_text(const CommClass& of) {
  return fmt::format("{} {}", to_string(of.axis), work_text({of.kind, of.purpose}));
}
std::string size_text(std::int64_t bytes) { return bytes < 0 ? "?" : format_size(static_cast<double>(bytes)); }
std::string us_text(double seconds) { return fmt::format("{:.1f}", 1e6 * seconds); }
std::string gb_text(double bytes_per_s) { return bytes_per_s > 0 ? fmt::format("{:.2f}", 1e-9 * bytes_per_s) : "-"; }
std::string signed_percent(double part) { return fmt::format("{:+.1f}%", 100 * part); }

std::string communication_text(const RunTrace& trace, const CommReport& report) {
  if (report.rows.empty()) return "no communication\n";
  TextTable table(
      columns("communication|size>|ranks>|groups>|operations>|skew p50 us>|transfer p50 us>|p99>|bus GB/s>"));
  for (std::size_t c = 0; c < report.classes.size(); ++c) {
    const ClassSummary& s = report.summaries[c];
    const CommClass& of = report.classes[c];
    table.row({class_text(of) + (of.one_host ? ", one host" : ""), size_text(of.size_bytes), std::to_string(of.members),
               std::to_string(s.groups), std::to_string(s.operations), s.complete > 0 ? us_text(s.skew_p50_s) : "-",
               s.complete > 0 ? us_text(s.transfer_p50_s) : "-", s.complete > 0 ? us_text(s.transfer_p99_s) : "-",
               gb_text(s.bus_bandwidth)});
  }
  TextTable sizes(columns("bus GB/s of|size from>|ranks>|operations>|bus GB/s>"));
  const std::vector<SizeBucket> buckets = size_buckets(report);
  for (const SizeBucket& of : buckets) {
    sizes.row({class_text({.axis = of.axis, .kind = of.kind}), size_text(of.least_bytes), std::to_string(of.members),
               std::to_string(of.operations), gb_text(of.bus_bandwidth)});
  }
  return table.str() + (buckets.empty() ? "" : "\n" + sizes.str()) + edges_text(report) + lateness_text(trace, report) +
         "\n" + suspects_text(trace, report);
}

std::string change_points_text(const RunTrace& trace, const ChangePoints& found) {
  std::string text;
  if (!found.long_enough)
    text = fmt::format("{}: too few to tell whether their level changes\n", plural(found.steps.size(), "step"));
  else if (found.points.empty())
    text = fmt::format("the step time does not change over {}\n", plural(found.steps.size(), "step"));
  for (const ChangePoint& point : found.points) {
    text += fmt::format("from step {} on a step takes {} instead of {} ({})\n", step_text(point.step),
                        format_duration(point.after_s), format_duration(point.before_s),
                        signed_percent(relative(point.before_s, point.after_s)));
    for (const RankChange& rank : point.ranks)
      text += fmt::format("  {}: {}\n", rank_text(trace, rank.rank), change_text(rank.change));
    if (point.ranks.empty()) text += fmt::format("  on all ranks: {}\n", change_text(point.usual));
  }
  for (std::size_t i = 0; i < std::min(found.pauses.size(), kMostChanges); ++i) {
    const Pause& pause = found.pauses[i];
    text += fmt::format("step {} alone took {} instead of {}", step_text(pause.step), format_duration(pause.step_s),
                        format_duration(pause.usual_s));
    if (pause.has_rank) text += fmt::format(": {}: {}", rank_text(trace, pause.at.rank), change_text(pause.at.change));
    text += "\n";
  }
  text += and_more(found.pauses.size(), kMostChanges);
  for (std::size_t i = 0; i < std::min(found.rank_shifts.size(), kMostChanges); ++i) {
    const RankShift& shift = found.rank_shifts[i];
    text += fmt::format("{} computes {} longer than others of its stage from step {} on, {} before\n",
                        rank_text(trace, shift.rank), signed_percent(shift.after - 1), step_text(shift.step),
                        signed_percent(shift.before - 1));
  }
  return text + and_more(found.rank_shifts.size(), kMostChanges);
}

}  // namespace ms::tracepp
