#include "tracepp/findings/late_causes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "tracepp/findings/work_diff.h"
#include "tracepp/steps/device_paths.h"

namespace ms::tracepp {
namespace {

using LateParts = std::map<std::pair<std::string, std::string>, double>;

struct LateSum {
  std::uint64_t collectives = 0;
  double late_ns = 0;
  LateParts parts;
};

class LateComparison {
 public:
  LateComparison(const RunTrace& trace, const Matches& matches, const std::vector<RankPaths>& ranks)
      : trace_(trace), matches_(matches), ranks_(ranks), walk_(trace, matches, ranks) {}

  // Compares the members' paths between two collectives that follow each other.
  void add(std::size_t before, std::size_t operation, std::map<std::uint32_t, LateSum>& late) {
    const auto ends = matches_.members_of(before), begins = matches_.members_of(operation);
    if (begins.size() < 2 || ends.size() != begins.size()) return;
    std::vector<std::int64_t> lengths;
    for (std::size_t m = 0; m < begins.size(); ++m) {
      const Event &end = event_of(trace_, ends[m]), &begin = event_of(trace_, begins[m]);
      if (ends[m].rank != begins[m].rank || end.state != State::ended || begin.state != State::ended) return;
      lengths.push_back(begin.begin_ns - end.end_ns());
      if (lengths.back() < 0) return;
    }
    const auto last = static_cast<std::size_t>(std::ranges::max_element(lengths) - lengths.begin());
    const auto others = static_cast<double>(begins.size() - 1);
    double late_ns = 0, ahead_ns = 0;
    for (std::size_t m = 0; m < begins.size(); ++m) {
      const double part = m == last ? 1 : -1 / others;
      late_ns += part * static_cast<double>(lengths[m]);
      ahead_ns -= part * computed_while_waiting(ends, m);
    }
    // Others that computed while they waited for this rank before have a lead since then, until the step ends.
    const Event& begin = event_of(trace_, begins[last]);
    const bool goes_on = lead_of_ == begins[last].rank && lead_in_ == begin.step && begin.step != kNoStep;
    if (goes_on) ahead_ns += lead_ns_;
    lead_of_ = begins[last].rank;
    lead_in_ = begin.step;
    lead_ns_ = std::max(ahead_ns - late_ns, 0.0);
    const double anew = late_ns > 0 ? std::clamp((late_ns - ahead_ns) / late_ns, 0.0, 1.0) : 0.0;
    if (anew == 0) return;
    LateSum& of_last = late[begins[last].rank];
    ++of_last.collectives;
    for (std::size_t m = 0; m < begins.size(); ++m) {
      const double part = (m == last ? 1 : -1 / others) * anew;
      of_last.late_ns += part * static_cast<double>(lengths[m]);
      for (const DevicePiece& piece :
           walk_.to_begin(begins[m].rank, begins[m].event, event_of(trace_, ends[m]).end_ns())) {
        of_last.parts[path_key(trace_, piece.work)] += part * static_cast<double>(piece.end_ns - piece.begin_ns);
      }
    }
  }

 private:
  // Returns how long a member of a collective computed until its last member came.
  double computed_while_waiting(std::span<const Member> members, std::size_t member) const {
    std::int64_t last_ns = 0, computed_ns = 0;
    for (const Member& other : members) last_ns = std::max(last_ns, event_of(trace_, other).begin_ns);
    const std::int64_t came_ns = event_of(trace_, members[member]).begin_ns;
    const std::vector<Event>& events = trace_.ranks[members[member].rank].events;
    const std::vector<std::uint32_t>& work = ranks_[members[member].rank].work;
    const auto first = std::ranges::upper_bound(work, came_ns, {}, [&](std::uint32_t i) { return events[i].end_ns(); });
    for (auto at = first; at != work.end() && events[*at].begin_ns < last_ns; ++at) {
      const Event& event = events[*at];
      if (trace::is_comm(trace_.info(event).kind)) continue;
      computed_ns += std::min(event.end_ns(), last_ns) - std::max(event.begin_ns, came_ns);
    }
    return static_cast<double>(computed_ns);
  }

  const RunTrace& trace_;
  const Matches& matches_;
  const std::vector<RankPaths>& ranks_;
  PathWalk walk_;
  // The lead that is left, relative to a rank in a step.
  std::uint32_t lead_of_ = 0;
  std::int32_t lead_in_ = kNoStep;
  double lead_ns_ = 0;
};

std::vector<LateCause> causes_of(const LateParts& parts) {
  std::vector<LateCause> causes;
  for (const auto& [key, ns] : parts) causes.push_back({key.first, key.second, static_cast<std::int64_t>(ns)});
  std::ranges::stable_sort(causes, std::greater<>{}, &LateCause::more_ns);
  return causes;
}

}  // namespace

bool LateRank::waits(const LateCause& cause) {
  return cause.of == to_string(PathOf::unsplit) || cause.of == to_string(PathOf::communication);
}

const LateCause* LateRank::cause() const {
  if (classes.empty() || late_ns <= 0 || 2 * classes[0].more_ns < late_ns) return nullptr;
  if (classes[0].of == to_string(PathOf::unknown)) return nullptr;
  return &classes[0];
}

const LateCause* LateRank::inside(const LateCause& cause) const {
  const auto found = std::ranges::find(causes, cause.of, &LateCause::of);
  return found == causes.end() ? nullptr : &*found;
}

double LateRank::confidence(const LateCause& cause) const {
  constexpr double kMost = 0.9;
  return std::min(kMost, static_cast<double>(cause.more_ns) / static_cast<double>(late_ns));
}

std::vector<LateRank> late_causes(const RunTrace& trace, const Matches& matches) {
  const std::vector<HostRole> roles = host_roles(trace);
  const std::vector<RankPaths> ranks = lay_out_paths(trace, roles);
  if (ranks.empty() || !matches.tie_ranks()) return {};
  LateComparison comparison(trace, matches, ranks);
  std::map<std::uint32_t, LateSum> late;
  for (std::size_t group = 0; group < trace.groups.size(); ++group) {
    const Matches::Range range = matches.of_group(static_cast<std::int32_t>(group));
    for (std::uint32_t o = range.first; o + 1 < range.end; ++o) {
      const EventInfo& info = trace.info(event_of(trace, matches.members_of(o + 1)[0]));
      if (!trace::is_point_to_point(info.kind)) comparison.add(o, o + 1, late);
    }
  }
  std::vector<LateRank> found;
  for (const auto& [rank, of] : late) {
    LateParts classes;
    for (const auto& [key, ns] : of.parts) classes[{key.first, ""}] += ns;
    found.push_back(
        {rank, of.collectives, static_cast<std::int64_t>(of.late_ns), causes_of(classes), causes_of(of.parts)});
  }
  std::ranges::stable_sort(found, std::greater<>{}, &LateRank::late_ns);
  return found;
}

Json late_causes_json(const RunTrace& trace, const std::vector<LateRank>& late) {
  constexpr std::size_t kMostCauses = 10;
  Json ranks = Json::array();
  for (const LateRank& of : late) {
    const LateCause* const cause = of.cause();
    Json row{{"rank", trace.ranks[of.rank].rank},
             {"collectives", of.collectives},
             {"late_ms", 1e-6 * static_cast<double>(of.late_ns)},
             {"cause", cause == nullptr ? Json(nullptr) : Json(cause->of)},
             {"confidence", cause == nullptr ? Json(nullptr) : Json(of.confidence(*cause))}};
    Json& instead = row["instead"] = Json::array();
    for (std::size_t i = 0; i < std::min(of.causes.size(), kMostCauses); ++i) {
      instead.push_back({{"of", of.causes[i].of},
                         {"name", of.causes[i].name},
                         {"more_ms", 1e-6 * static_cast<double>(of.causes[i].more_ns)}});
    }
    ranks.push_back(std::move(row));
  }
  return ranks;
}

}  // namespace ms::tracepp
