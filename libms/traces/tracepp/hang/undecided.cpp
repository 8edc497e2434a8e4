#include "tracepp/hang/undecided.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "tracepp/hang/blame.h"

namespace ms::tracepp {
namespace {

constexpr double kComputes_s = 60;  // the longest that a device computes between two calls

bool is_empty(const RankTrace& rank) { return rank.events.empty() && !rank.is_cut_off; }

// Returns what is known where all ranks ended their calls and have issued nothing for longer than between two before.
std::optional<Undecided> idle(const RunTrace& trace) {
  constexpr double kPausesLonger = 1.5;
  double since_s = -1, interval_s = kComputes_s;
  for (const RankTrace& rank : trace.ranks) {
    if (rank.events.empty() || rank.events.back().state != State::ended || !rank.is_flush_time_known)
      return std::nullopt;
    const double idle_s = seconds(rank.last_flush_ns - rank.events.back().end_ns());
    since_s = since_s < 0 ? idle_s : std::min(since_s, idle_s);
    for (std::size_t i = 1; i < rank.events.size(); ++i)
      interval_s = std::max(interval_s, seconds(rank.events[i].begin_ns - rank.events[i - 1].begin_ns));
  }
  if (since_s <= kPausesLonger * interval_s) return std::nullopt;
  return Undecided{.sentence = fmt::format(
                       "all {} have ended their calls, the last {}, and issued nothing for {} until the time stamps "
                       "of their files: they hang outside of collectives, or they load, save, or have ended; the "
                       "stacks of their processes tell (py-spy dump)",
                       plural(trace.ranks.size(), "rank"), event_label(trace, trace.ranks.front().events.back()),
                       seconds_label(since_s)),
                   .since_s = since_s};
}

// Returns what is known where all that is blamed is that all members are in an operation for a time that is not known.
std::optional<Undecided> inside(const RunTrace& trace, const HangGraph& graph, const std::vector<Blame>& blames) {
  const auto is_untimed = [&](const Blame& it) {
    if (it.op < 0) return false;
    const StuckOp& op = graph.ops[static_cast<std::size_t>(it.op)];
    return op.since_s < 0 && op.missing.empty() && it.suspects.size() > 1 &&
           it.suspects.front().reason == Reason::transfer;
  };
  if (blames.empty() || !std::ranges::all_of(blames, is_untimed)) return std::nullopt;
  const StuckOp& op = graph.ops[static_cast<std::size_t>(blames.front().op)];
  return Undecided{
      .sentence =
          fmt::format("nothing tells a hang from a healthy run: {} members are in {} for an unknown time, and agree on "
                      "what it is; dump again in a minute, and copy the files with cp -p: it is a hang if the same "
                      "call still waits",
                      op.waiting, op_label(trace, op))};
}

}  // namespace

std::optional<Undecided> undecided(const HangScan& scan, const HangGraph& graph, const std::vector<Blame>& blames,
                                   bool is_stuck) {
  const RunTrace& trace = scan.trace();
  if (!trace.source->is_dump) return std::nullopt;
  if (is_stuck) return inside(trace, graph, blames);
  if (!graph.ops.empty()) return std::nullopt;
  if (!trace.ranks.empty() && std::ranges::all_of(trace.ranks, &RankTrace::is_cut_off)) {
    return Undecided{.sentence = fmt::format("nothing tells whether the run is well: none of the dumps of {} is whole",
                                             plural(trace.ranks.size(), "rank"))};
  }
  if (!trace.ranks.empty() && std::ranges::all_of(trace.ranks, is_empty)) {
    return Undecided{
        .sentence = fmt::format("nothing tells whether the run is well: the dumps of {} hold no entries; the recorder "
                                "keeps as many as TORCH_FR_BUFFER_SIZE says, or TORCH_NCCL_TRACE_BUFFER_SIZE in older "
                                "versions of PyTorch: set it to 2000 or more before the run",
                                plural(trace.ranks.size(), "rank"))};
  }
  std::size_t ranks = 0;
  std::string label;
  double since_s = -1;
  for (std::size_t at = 0; at < scan.count(); ++at) {
    const RankTrace& file = scan.file(at);
    if (scan.rank(at).open.empty() || file.is_cut_off) continue;
    const Event& event = file.events[scan.rank(at).open.front()];
    if (ranks++ == 0) label = event_label(trace, event);
    if (!file.is_flush_time_known) continue;
    since_s = std::max(since_s, static_cast<double>(file.last_flush_ns - event.begin_ns) * 1e-9);
  }
  if (ranks == 0 || (since_s >= 0 && since_s < kJustNow_s)) return std::nullopt;
  const bool is_stalled = since_s > kComputes_s;
  const std::string issued = fmt::format("{} issued {}{}, and it has begun on none of them", plural(ranks, "rank"),
                                         label, since_s < 0 ? "" : fmt::format(" {} ago", seconds_label(since_s)));
  return Undecided{
      .state = is_stalled ? RunState::hang : RunState::unknown,
      .sentence =
          issued + (is_stalled ? ": what their devices do before it does not end; dumps do not show what that is"
                               : ": what their devices do before it does not end, or the run is well and they "
                                 "compute; the dumps do not show which"),
      .since_s = since_s};
}

std::optional<Undecided> mixed_attempts(const HangScan& scan) {
  constexpr std::size_t kNewerShown = 2;
  const RunTrace& trace = scan.trace();
  std::vector<int> newer;
  std::string shown;
  for (std::size_t at = 0; at < scan.count(); ++at) {
    if (scan.file(at).later_s <= 0) continue;
    newer.push_back(scan.file(at).rank);
    if (newer.size() <= kNewerShown)
      shown += fmt::format("; {}: {}", rank_name(trace, scan.file(at).rank), doing(scan, at));
  }
  if (newer.empty()) return std::nullopt;
  const bool is_one = newer.size() == 1;
  return Undecided{.sentence = fmt::format(
                       "nothing is certain: the {} of {} {} newer than the others, whose ranks ended operations before "
                       "that {}; {} restarted, or the others are left from before: give the dumps of one attempt{}",
                       is_one ? "dump" : "dumps", few_names(trace, newer), is_one ? "is" : "are",
                       is_one ? "it lacks" : "they lack", is_one ? "the rank" : "these ranks", shown)};
}

std::optional<Undecided> partial(const HangScan& scan, const std::vector<int>& missing_ranks) {
  const RunTrace& trace = scan.trace();
  const auto twice = trace.problems.find("second file of a rank, the older was left out");
  const std::size_t files = trace.unusable.size() + (twice == trace.problems.end() ? 0 : twice->second);
  if (!trace.source->is_dump) return std::nullopt;
  if (files == 0 && missing_ranks.empty()) return idle(trace);
  const auto whole = std::ranges::count(trace.ranks, false, &RankTrace::is_cut_off);
  const std::string text = fmt::format("nothing tells whether the run is well: no rank waits in the dumps of {}",
                                       plural(static_cast<std::size_t>(whole), "rank"));
  return Undecided{.sentence = files == 0 ? text : text + fmt::format("; {} left out", plural(files, "file"))};
}

}  // namespace ms::tracepp
