#include "tracepp/read/flight_recorder_run.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace ms::tracepp {
namespace {

constexpr std::size_t kEnough = 3;                       // members, and collectives that they ended
constexpr std::int64_t kLeast_ns = 2'000'000'000;        // PyTorch sees ends up to a second late
constexpr std::int64_t kMost_ns = 60'000'000'000;        // more is another time, as EarlierDumps says
constexpr std::int64_t kLongest_ns = 7'200'000'000'000;  // far beyond the usual timeouts, and loads of a model

std::int64_t middle(std::vector<std::int64_t> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, half);
  return *half;
}

}  // namespace

void find_written(RankTrace& rank) {
  const std::int64_t lasted_ns = rank.file_ns - rank.last_flush_ns;
  rank.is_flush_time_known = lasted_ns >= 0 && lasted_ns <= kLongest_ns;
  if (rank.is_flush_time_known) rank.last_flush_ns = rank.file_ns;
}

void leave_out_old_lines(RunTrace& trace) {
  std::int64_t first_ns = 0;
  for (const RankTrace& rank : trace.ranks)
    for (const Event& event : rank.events)
      if (rank.file_ns > 0 && event.begin_ns > 0 && (first_ns == 0 || event.begin_ns < first_ns))
        first_ns = event.begin_ns;
  std::set<int> dumped;
  for (const RankTrace& rank : trace.ranks) dumped.insert(rank.rank);
  const std::size_t old = std::erase_if(trace.witnesses.lines, [&](const NotedLine& line) {
    const bool may_be_lost = line.process.rank >= 0 && !dumped.contains(line.process.rank);  // it died before the dumps
    return !may_be_lost && line.file_ns > 0 && line.file_ns + kLongest_ns < first_ns;
  });
  std::erase_if(trace.witnesses.lines,
                [&](const NotedLine& line) { return line.has_logged_after && dumped.contains(line.process.rank); });
  if (old > 0) trace.problems["line of a log that was last written before the dumps begin, left out"] += old;
}

void align_dumps(RunTrace& trace) {
  using Place = std::pair<std::int32_t, std::uint32_t>;                        // group and number
  std::map<Place, std::vector<std::pair<std::size_t, std::int64_t>>> ends_ns;  // by rank
  for (std::size_t at = 0; at < trace.ranks.size(); ++at) {
    for (const Event& event : trace.ranks[at].events) {
      const EventInfo& info = trace.info(event);
      if (event.state == State::ended && event.duration_ns > 0 && event.detail != kNoDetail && info.group >= 0 &&
          needs_all_members(info.kind))
        ends_ns[{info.group, event.detail}].emplace_back(at, event.end_ns());
    }
  }
  // By rank and group: how far its clock is ahead of the middle one.
  std::vector<std::map<std::int32_t, std::vector<std::int64_t>>> ahead_ns(trace.ranks.size());
  std::map<std::int32_t, std::size_t> members;
  for (const auto& [place, found] : ends_ns) {
    if (found.size() < kEnough) continue;
    std::vector<std::int64_t> times_ns;
    for (const auto& [at, end_ns] : found) times_ns.push_back(end_ns);
    const std::int64_t middle_ns = middle(std::move(times_ns));
    for (const auto& [at, end_ns] : found) ahead_ns[at][place.first].push_back(end_ns - middle_ns);
    members[place.first] = std::max(members[place.first], found.size());
  }
  for (std::size_t at = 0; at < trace.ranks.size(); ++at) {
    RankTrace& rank = trace.ranks[at];
    std::erase_if(ahead_ns[at], [](const auto& it) { return it.second.size() < kEnough; });
    if (ahead_ns[at].empty()) continue;
    const auto largest = std::ranges::max_element(ahead_ns[at], {}, [&](const auto& it) { return members[it.first]; });
    const std::int64_t by_ns = middle(largest->second);
    if (std::abs(by_ns) < kLeast_ns || std::abs(by_ns) > kMost_ns) continue;
    std::int64_t newest_ns = 0;
    for (Event& event : rank.events) {
      event.begin_ns -= by_ns;
      newest_ns = std::max({newest_ns, event.begin_ns, event.end_ns()});
    }
    rank.last_flush_ns = newest_ns;
    find_written(rank);
    rank.clock_ns = rank.realtime_ns = rank.last_flush_ns;
    ++trace.problems["clock apart from those of others, set by the ends of collectives"];
  }
}

}  // namespace ms::tracepp
