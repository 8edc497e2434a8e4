#include "tracepp/hang/dump_waits.h"

#include <fmt/format.h>

#include <algorithm>

namespace ms::tracepp {
namespace {

constexpr std::size_t kEnough = 3;         // operations that ended, or took as long, to tell how long such ones take
constexpr std::size_t kFirstCalls = 10;    // of a rank: until then, it may compile or load before the next
constexpr double kDefaultTimeout_s = 600;  // of PyTorch's NCCL groups
constexpr double kAsBefore = 1.25;         // times an earlier wait: no longer than it,
constexpr double kAsBefore_s = 2;          // and by no more than this: timeouts are near what healthy runs wait at most
constexpr double kSteps = 1.5;             // times the longest interval: short against a step
constexpr double kUnknownStep_s = 60;      // a step may take as long where nothing tells
// The clock of the files may be so far ahead of those of the ranks: a shorter wait may be none.
constexpr double kClocks_s = 60;
constexpr double kShortAtMost = 0.5;  // confidence

double as_before_s(double earlier_s) { return std::min(kAsBefore * earlier_s, earlier_s + kAsBefore_s); }

// Returns whether a rank is blamed only because others wait: for it, or with it.
bool is_only_wait(const Blame& blame) {
  const Reason reason = blame.suspects.front().reason;
  return blame.op >= 0 && (reason == Reason::no_trace || reason == Reason::compute || reason == Reason::not_issuing ||
                           reason == Reason::transfer || reason == Reason::waits_alone);
}

}  // namespace

DumpWaits::DumpWaits(const HangScan& scan, const HangGraph& graph)
    : scan_(scan), graph_(graph), lacks_ranks_(!missing_ranks(scan.trace()).empty()) {
  is_beginning_ = std::ranges::all_of(scan.trace().ranks, [](const RankTrace& rank) {
    return !rank.is_partial &&
           std::ranges::count(rank.events, State::ended, &Event::state) < static_cast<std::ptrdiff_t>(kFirstCalls);
  });
  for (const StuckOp& op : graph.ops)
    if (!has_just_begun(op)) before_.try_emplace(key_of(op));
  for (std::size_t at = 0; at < scan.count() && !before_.empty(); ++at) {
    std::map<Key, std::vector<std::uint32_t>> ended;  // in order of issue
    const std::vector<Event>& events = scan.file(at).events;
    for (std::uint32_t i = 0; i < events.size(); ++i) {
      if (events[i].state != State::ended) continue;
      const EventInfo& info = scan.info(at, i);
      const Key key{info.group, trace::is_point_to_point(info.kind) ? Kind::send : info.kind};
      if (before_.contains(key)) ended[key].push_back(i);
    }
    for (const auto& [key, found] : ended) add(at, key, found);
  }
  for (const auto& [key, numbers] : durations_s_) {
    std::vector<double>& waits_s = before_[key].waits_s;
    for (const auto& [number, longest_s] : numbers) {
      const auto issues = issues_[key].find(number);
      const double spread_s =
          issues == issues_[key].end() ? 0 : seconds(issues->second.last_ns - issues->second.first_ns);
      waits_s.push_back(std::max(longest_s, spread_s));
    }
    std::ranges::sort(waits_s, std::ranges::greater{});
  }
  issues_.clear();
  durations_s_.clear();
}

void DumpWaits::add(std::size_t at, const Key& key, const std::vector<std::uint32_t>& events) {
  Before& before = before_[key];
  std::map<std::uint32_t, Issues>& issues = issues_[key];
  std::map<std::uint32_t, double>& durations_s = durations_s_[key];
  const auto event = [&](std::uint32_t i) -> const Event& { return scan_.file(at).events[i]; };
  std::vector<std::int64_t> ahead_ns;  // of the clock of the first member
  std::int64_t last_ns = 0;
  before.ended = std::max(before.ended, events.size());
  for (const std::uint32_t i : events) {
    const Event& it = event(i);
    double& longest_s = durations_s.try_emplace(it.detail, 0).first->second;
    longest_s = std::max(longest_s, seconds(it.duration_ns));
    if (last_ns > 0) before.interval_s = std::max(before.interval_s, seconds(it.begin_ns - last_ns));
    last_ns = it.begin_ns;
    if (const auto known = issues.find(it.detail); known != issues.end())
      ahead_ns.push_back(it.begin_ns - known->second.seen_ns);
  }
  if (ahead_ns.empty() && !issues.empty()) return;  // nothing relates the clocks
  // A clock that is ahead, or a rank that is always late: nothing tells them apart, and neither counts as a wait.
  std::int64_t clock_ns = 0;
  const auto [least, most] = std::ranges::minmax_element(ahead_ns);
  if (!ahead_ns.empty() && (*least > 0 || *most < 0)) {
    const auto middle = ahead_ns.begin() + static_cast<std::ptrdiff_t>(ahead_ns.size() / 2);
    std::ranges::nth_element(ahead_ns, middle);
    clock_ns = *middle;
  }
  for (const std::uint32_t i : events) {
    const std::int64_t begin_ns = event(i).begin_ns - clock_ns;
    Issues& all = issues.try_emplace(event(i).detail, Issues{begin_ns, begin_ns, begin_ns}).first->second;
    all = {all.seen_ns, std::min(all.first_ns, begin_ns), std::max(all.last_ns, begin_ns)};
  }
}

DumpWaits::Key DumpWaits::key_of(const StuckOp& op) const {
  for (const MemberView& member : op.members) {
    if (!member.has_info) continue;
    const Kind kind = scan_.trace().infos[member.info].kind;
    return {op.group, trace::is_point_to_point(kind) ? Kind::send : kind};
  }
  return {op.group, Kind::other_comm};
}

const DumpWaits::Before& DumpWaits::before(const StuckOp& op) const { return before_.at(key_of(op)); }

bool DumpWaits::has_just_begun(const StuckOp& op) const { return op.since_s < kJustNow_s; }

bool DumpWaits::is_given_up(const StuckOp& op) const {
  return std::ranges::any_of(op.members, [&](const MemberView& member) {
    const int timeout_s = member.has_info ? scan_.trace().infos[member.info].timeout_s : 0;
    return timeout_s > 0 && op.since_s >= timeout_s;
  });
}

bool DumpWaits::is_usual(const StuckOp& op) const {
  if (has_just_begun(op)) return true;
  if (is_given_up(op)) return false;
  const std::vector<double>& waits_s = before(op).waits_s;
  return !lacks_ranks_ && waits_s.size() >= kEnough && op.since_s <= as_before_s(waits_s[kEnough - 1]);
}

bool DumpWaits::is_within_clocks(const StuckOp& op) const {
  return op.since_s < kClocks_s && std::ranges::any_of(scan_.trace().ranks, [](const RankTrace& rank) {
           return rank.file_ns > 0 && rank.is_flush_time_known;
         });
}

bool DumpWaits::is_short(const StuckOp& op) const {
  if (op.since_s < kJustNow_s) return true;
  if (is_given_up(op)) return false;
  if (is_within_clocks(op)) return true;
  if (before(op).ended >= kEnough) return op.since_s < kSteps * before(op).interval_s;
  return op.since_s < (is_beginning_ ? kDefaultTimeout_s : kUnknownStep_s);
}

bool DumpWaits::are_usual(const std::vector<Blame>& blames) const {
  const std::vector<RankTrace>& ranks = scan_.trace().ranks;
  const auto is_known = [](const RankTrace& rank) { return rank.is_flush_time_known || rank.is_cut_off; };
  if (!std::ranges::all_of(ranks, is_known)) return false;
  const bool only_waits = std::ranges::all_of(blames, is_only_wait);
  return std::ranges::all_of(graph_.ops, [&](const StuckOp& op) {
    return !is_mismatch(op.match) && (has_just_begun(op) || (only_waits && is_usual(op)));
  });
}

bool DumpWaits::have_just_begun() const {
  return !lacks_ranks_ && std::ranges::all_of(graph_.ops, [&](const StuckOp& op) { return has_just_begun(op); });
}

double DumpWaits::longest_s() const { return std::ranges::max(graph_.ops, {}, &StuckOp::since_s).since_s; }

std::string DumpWaits::usual_text() const {
  const StuckOp& op = *std::ranges::max_element(graph_.ops, {}, &StuckOp::since_s);
  const std::string in = fmt::format("{} of {} members were in {} for {} when the dumps were written", op.waiting,
                                     op.members.size(), op_label(scan_.trace(), op), seconds_label(op.since_s));
  if (op.since_s < kJustNow_s) return in + ", as those of a healthy run are";
  const std::vector<double>& waits_s = before(op).waits_s;
  const auto alike = std::ranges::count_if(waits_s, [&](double wait_s) { return op.since_s <= as_before_s(wait_s); });
  return in + fmt::format(", and {} such calls before took about as long or longer (up to {})", alike,
                          seconds_label(waits_s.front()));
}

bool DumpWaits::is_doubtful(const Blame& blame) const {
  return !blame.suspects.empty() && is_only_wait(blame) && is_short(graph_.ops[static_cast<std::size_t>(blame.op)]);
}

void DumpWaits::doubt_short(std::vector<Blame>& blames) const {
  for (Blame& blame : blames) {
    if (!is_doubtful(blame) || graph_.ops[static_cast<std::size_t>(blame.op)].since_s < kJustNow_s) continue;
    for (HangSuspect& suspect : blame.suspects) suspect.confidence = std::min(suspect.confidence, kShortAtMost);
  }
}

std::string DumpWaits::doubt_text(const Blame& blame) const {
  if (!is_doubtful(blame)) return "";
  const StuckOp& op = graph_.ops[static_cast<std::size_t>(blame.op)];
  if (op.since_s < kJustNow_s)
    return "the dumps do not show for how long: those of a healthy run, written while a rank computes, look alike";
  if (before(op).ended < kEnough && is_beginning_)
    return fmt::format(
        "the job has only begun: within {}, a rank may still compile or load before such a call; dump again a minute "
        "later",
        seconds_label(op.since_s));
  if (before(op).ended < kEnough)
    return fmt::format(
        "{} is a short wait, and the dumps show too few such calls before it to tell how long they take: "
        "dump again a minute later",
        seconds_label(op.since_s));
  if (op.since_s >= kSteps * before(op).interval_s)
    return fmt::format(
        "{} until the time stamps of the files: their clock may be as far ahead of those of the ranks; dump again a "
        "minute later",
        seconds_label(op.since_s));
  return fmt::format("{} is a short wait where {} lie between two such calls of a rank: dump again after that time",
                     seconds_label(op.since_s), seconds_label(before(op).interval_s));
}

}  // namespace ms::tracepp
