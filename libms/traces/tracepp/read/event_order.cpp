#include "tracepp/read/event_order.h"

#include <algorithm>
#include <utility>

namespace ms::tracepp {

void sort_by_begin(std::vector<Event>& events) {
  // Traces are mostly a few sorted runs, one behind the other: merge neighbours until there is one.
  std::vector<std::size_t> runs{0};
  for (std::size_t i = 1; i < events.size(); ++i) {
    if (events[i].begin_ns < events[i - 1].begin_ns) runs.push_back(i);
  }
  if (runs.size() == 1) return;
  runs.push_back(events.size());
  std::vector<Event> other(events.size());
  while (runs.size() > 2) {
    std::vector<std::size_t> merged;
    for (std::size_t i = 0; i + 1 < runs.size(); i += 2) {
      const auto at = [&](std::size_t run) {
        return events.begin() + static_cast<std::ptrdiff_t>(runs[std::min(run, runs.size() - 1)]);
      };
      merged.push_back(runs[i]);
      std::ranges::merge(at(i), at(i + 1), at(i + 1), at(i + 2), other.begin() + (at(i) - events.begin()), {},
                         &Event::begin_ns, &Event::begin_ns);
    }
    merged.push_back(events.size());
    runs = std::move(merged);
    events.swap(other);
  }
}

}  // namespace ms::tracepp
