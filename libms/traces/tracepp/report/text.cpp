// Implements the part of text.h on single runs' steps. changes_text.cpp and diff_text.cpp have the rest.
#include "tracepp/report/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostKinds = 8, kMostRanks = 8;

std::string ms(double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); }
std::string percent(double part) { return fmt::format("{:.1f}%", 100 * part); }

// The mean of a step over all ranks that have one, the least and the most.
class Parts {
 public:
  Parts(const RunTrace& trace, const Breakdown& breakdown) : trace_(trace), all_(sum_of(breakdown.steps)) {
    for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
      if (breakdown.of_rank(r).empty()) continue;
      ranks_.push_back(r);
      sums_.push_back(sum_of(breakdown.of_rank(r)));
      counts_.push_back(static_cast<double>(breakdown.of_rank(r).size()));
    }
    steps_ = static_cast<double>(breakdown.steps.size());
  }

  template <typename Of>
  void row(TextTable& table, std::string name, const Of& of) const {
    std::size_t least = 0, most = 0;
    const auto mean_s = [&](std::size_t i) { return seconds(of(sums_[i])) / counts_[i]; };
    for (std::size_t i = 1; i < sums_.size(); ++i) {
      if (mean_s(i) < mean_s(least)) least = i;
      if (mean_s(i) > mean_s(most)) most = i;
    }
    table.row({std::move(name), ms(seconds(of(all_)) / steps_), percent(share(of(all_))), ms(mean_s(least)),
               std::to_string(trace_.ranks[ranks_[least]].rank), ms(mean_s(most)),
               std::to_string(trace_.ranks[ranks_[most]].rank)});
  }
  const StepTime& all() const { return all_; }
  double steps() const { return steps_; }

 private:
  double share(std::int64_t ns) const {
    return all_.length_ns == 0 ? 0 : static_cast<double>(ns) / static_cast<double>(all_.length_ns);
  }

  const RunTrace& trace_;
  std::vector<std::size_t> ranks_;  // index
  std::vector<StepTime> sums_;
  std::vector<double> counts_;
  StepTime all_;
  double steps_ = 0;
};

bool has_work(const StepTime& sum) {
  return sum.busy_ns + sum.stalled_ns + sum.copy_ns > 0 ||
         std::ranges::any_of(kWaitOrder, [&](GroupAxis axis) { return sum.axis(axis).total_ns > 0; });
}

std::string kinds_text(const RunTrace& trace, const Breakdown& breakdown, bool all) {
  struct Row {
    std::size_t kind = 0;
    double mean_s = 0, most_s = 0;
    std::uint64_t events = 0;
    std::size_t rank = 0;
  };
  std::vector<Row> rows(breakdown.kinds.size());
  for (std::size_t k = 0; k < rows.size(); ++k) {
    rows[k].kind = k;
    for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
      const auto count = static_cast<double>(breakdown.of_rank(r).size());
      if (count == 0) continue;
      const KindTime& time = breakdown.kinds_of_rank(r)[k];
      const double of_rank_s = seconds(time.time_ns) / count;
      rows[k].mean_s += seconds(time.time_ns) / static_cast<double>(breakdown.steps.size());
      rows[k].events += time.events;
      if (of_rank_s <= rows[k].most_s) continue;
      rows[k].most_s = of_rank_s;
      rows[k].rank = r;
    }
  }
  std::erase_if(rows, [](const Row& row) { return row.events == 0; });
  std::ranges::stable_sort(rows, std::greater<>{}, &Row::mean_s);
  const std::size_t more = all || rows.size() <= kMostKinds ? 0 : rows.size() - kMostKinds;
  rows.resize(rows.size() - more);
  TextTable table(columns("kind|ms a step>|most>|rank>|events>"));
  for (const Row& row : rows) {
    table.row({work_text(breakdown.kinds[row.kind]), ms(row.mean_s), ms(row.most_s),
               std::to_string(trace.ranks[row.rank].rank), format_count(static_cast<double>(row.events))});
  }
  return table.str() + (more == 0 ? "" : fmt::format("and {} more: --all\n", more));
}

}  // namespace

std::vector<std::string> lines_of(std::string text, std::size_t width) {
  constexpr char kStays = '\x1f';
  for (std::size_t at = text.find(" %"); at != std::string::npos; at = text.find(" %", at)) text[at] = kStays;
  std::vector<std::string> lines = wrap(text, width);
  for (std::string& line : lines) std::ranges::replace(line, kStays, ' ');
  return lines;
}

std::string work_text(const KindOfWork& work) {
  const std::string_view purpose = to_string(work.purpose);
  return purpose.empty() ? std::string(to_string(work.kind)) : fmt::format("{} {}", to_string(work.kind), purpose);
}

std::string rank_text(const RunTrace& trace, std::size_t rank) {
  const RankTrace& r = trace.ranks[rank];
  std::string where;
  if (trace.has_mesh) where = fmt::format("dp {} pp {} tp {}", r.at.dp, r.at.pp, r.at.tp);
  if (!r.host.empty()) where += (where.empty() ? "" : ", ") + plain_text(r.host, 64);
  return where.empty() ? fmt::format("rank {}", r.rank) : fmt::format("rank {} ({})", r.rank, where);
}

std::string breakdown_text(const RunTrace& trace, const Breakdown& breakdown, bool all) {
  if (breakdown.steps.empty()) return "no finished step\n";
  const Parts parts(trace, breakdown);
  if (!has_work(parts.all())) {
    return "no computing and no communication in these steps: it is not known where their time went\n";
  }
  TextTable table(columns("part of a step|ms>|share>|least>|rank>|most>|rank>"));
  parts.row(table, "busy", [](const StepTime& s) { return s.busy_ns; });
  parts.row(table, "stalled in sections", [](const StepTime& s) { return s.stalled_other_ns; });
  for (const GroupAxis axis : kWaitOrder) {
    if (parts.all().axis(axis).total_ns == 0) continue;
    parts.row(table, fmt::format("waiting for {}", to_string(axis)),
              [axis](const StepTime& s) { return s.axis(axis).waiting_ns; });
  }
  if (parts.all().copy_ns > 0) parts.row(table, "copying", [](const StepTime& s) { return s.copy_ns; });
  parts.row(table, "save", [](const StepTime& s) { return s.save_ns; });
  parts.row(table, "data wait", [](const StepTime& s) { return s.data_wait_ns; });
  parts.row(table, "idle", [](const StepTime& s) { return s.idle_ns; });
  parts.row(table, "step", [](const StepTime& s) { return s.length_ns; });

  TextTable axes(columns("communication over|ms a step>|exposed>|hidden>"));
  bool has_communication = false;
  for (const GroupAxis axis : kWaitOrder) {
    const AxisTime& time = parts.all().axis(axis);
    if (time.total_ns == 0) continue;
    has_communication = true;
    axes.row({std::string(to_string(axis)), ms(seconds(time.total_ns) / parts.steps()),
              ms(seconds(time.exposed_ns) / parts.steps()), percent(time.overlap())});
  }
  return table.str() + (has_communication ? "\n" + axes.str() : "") + "\n" + kinds_text(trace, breakdown, all);
}

std::string bubble_text(const Bubble& bubble) {
  if (!bubble.unknown.empty()) return fmt::format("no pipeline bubble: {}\n", bubble.unknown);
  TextTable table(columns("stage>|window ms>|computing>|communication>|bubble>|of computing>"));
  for (const StageBubble& stage : bubble.by_stage) {
    table.row({std::to_string(stage.stage), ms(stage.window_s), ms(stage.computing_s), ms(stage.communication_s),
               ms(stage.bubble_s), stage.computing_s > 0 ? percent(stage.bubble_s / stage.computing_s) : "-"});
  }
  return fmt::format(
             "pipeline bubble, {} with {} stages, {}, microbatches {}: {} ms of a step ({} of computing); by the "
             "formula {} ms "
             "({})\n",
             bubble.schedule->name, bubble.stages, plural(static_cast<std::size_t>(bubble.chunks), "chunk"),
             bubble.microbatches, ms(bubble.measured_s), percent(bubble.measured_of_computing), ms(bubble.expected_s),
             percent(bubble.expected_of_computing)) +
         table.str();
}

std::string effective_text(const Effective& e) {
  if (e.steps == 0) return "no finished step\n";
  std::string text =
      fmt::format("{} in {}, median {}; {} of the time in steps\n", plural(static_cast<std::size_t>(e.steps), "step"),
                  format_duration(e.wall_s), format_duration(e.median_step_s), percent(e.effective));
  if (e.save_s + e.data_wait_s + e.other_gaps_s > 0)
    text += fmt::format("between steps: saves {}, data {}, other {}\n", format_duration(e.save_s),
                        format_duration(e.data_wait_s), format_duration(e.other_gaps_s));
  if (e.missing_steps > 0)
    text += fmt::format("{} in between not traced\n", plural(static_cast<std::size_t>(e.missing_steps), "step"));
  if (e.mfu > 0)
    text += fmt::format("MFU {} in the median step, {} of the time\n", percent(e.mfu), percent(e.mfu_of_wall));
  return text;
}

std::string critical_path_text(const RunTrace& trace, const CriticalPaths& paths) {
  if (!paths.unknown.empty()) return fmt::format("no critical path: {}\n", paths.unknown);
  if (paths.time_ns == 0) return "no finished step\n";
  const auto share = [&](std::int64_t ns) {
    return percent(static_cast<double>(ns) / static_cast<double>(paths.time_ns));
  };
  const double steps = static_cast<double>(paths.steps.size());
  TextTable kinds(columns("on the critical path|of|ms a step>|share>"));
  for (std::size_t i = 0; i < std::min(paths.by_kind.size(), kMostKinds); ++i) {
    const PathShare& kind = paths.by_kind[i];
    std::string of = kind.of == PieceOf::delay ? "" : work_text(kind.work);
    if (kind.of == PieceOf::transfer) of += fmt::format(" over {}", to_string(kind.axis));
    kinds.row({std::string(to_string(kind.of)), std::move(of), ms(seconds(kind.time_ns) / steps), share(kind.time_ns)});
  }
  TextTable ranks(columns("rank|ms a step>|share>|computing>"));
  for (std::size_t i = 0; i < std::min(paths.by_rank.size(), kMostRanks); ++i) {
    const RankShare& rank = paths.by_rank[i];
    ranks.row({rank_text(trace, rank.rank), ms(seconds(rank.time_ns) / steps), share(rank.time_ns),
               ms(seconds(rank.computing_ns) / steps)});
  }
  std::string text = kinds.str() + "\n" + ranks.str();
  if (paths.by_rank.size() > kMostRanks) text += fmt::format("and {} more ranks\n", paths.by_rank.size() - kMostRanks);
  return text;
}

}  // namespace ms::tracepp
