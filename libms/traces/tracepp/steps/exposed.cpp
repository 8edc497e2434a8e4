#include "tracepp/steps/exposed.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace ms::tracepp {
namespace {

struct Stretch {
  std::int64_t begin_ns = 0, end_ns = 0;
};

// Adds a stretch that begins no earlier than those before.
void unite(std::vector<Stretch>& stretches, const Event& event) {
  if (stretches.empty() || event.begin_ns > stretches.back().end_ns) {
    stretches.push_back({event.begin_ns, event.end_ns()});
  } else {
    stretches.back().end_ns = std::max(stretches.back().end_ns, event.end_ns());
  }
}

// Returns for how long both are under way.
std::int64_t in_both(const std::vector<Stretch>& some, const std::vector<Stretch>& others) {
  std::int64_t sum_ns = 0;
  for (std::size_t i = 0, j = 0; i < some.size() && j < others.size();) {
    sum_ns += std::max<std::int64_t>(
        0, std::min(some[i].end_ns, others[j].end_ns) - std::max(some[i].begin_ns, others[j].begin_ns));
    (some[i].end_ns < others[j].end_ns ? i : j) += 1;
  }
  return sum_ns;
}

}  // namespace

std::vector<ExposedComm> exposed_communication(const RunTrace& trace) {
  std::map<std::pair<std::int32_t, Kind>, ExposedComm> sums;
  for (const RankTrace& rank : trace.ranks) {
    std::vector<Stretch> computing;
    std::map<std::pair<std::int32_t, Kind>, std::vector<Stretch>> comms;
    for (const Event& event : rank.events) {
      const EventInfo& info = trace.info(event);
      if (event.state != State::ended) continue;
      if (trace::is_comm(info.kind)) {
        const std::pair key(info.group, info.kind);
        unite(comms[key], event);
        ++sums.try_emplace(key, ExposedComm{.group = info.group, .kind = info.kind}).first->second.operations;
      } else if (trace::is_op(info.kind) || trace::is_section(info.kind)) {
        unite(computing, event);
      }
    }
    for (const auto& [key, stretches] : comms) {
      ExposedComm& sum = sums[key];
      for (const Stretch& stretch : stretches) {
        sum.total_ns += stretch.end_ns - stretch.begin_ns;
        sum.exposed_ns += stretch.end_ns - stretch.begin_ns;
      }
      sum.exposed_ns -= in_both(stretches, computing);
    }
  }
  std::vector<ExposedComm> found;
  for (const auto& [key, sum] : sums) found.push_back(sum);
  std::ranges::stable_sort(found, std::greater<>{}, &ExposedComm::exposed_ns);
  return found;
}

}  // namespace ms::tracepp
