// Implements merge of read.h.
#include "tracepp/read/read.h"

namespace ms::tracepp {

void merge(RunTrace& into, RunTrace&& part) {
  std::vector<std::uint32_t> string_of, info_of;
  for (std::uint32_t i = 0; i < part.strings.size(); ++i) string_of.push_back(into.strings.id(part.strings.text(i)));
  Tables tables(into);
  std::vector<std::int32_t> group_of;
  for (const ProcessGroup& group : part.groups) group_of.push_back(tables.group(group));
  for (EventInfo info : part.infos) {
    info.name = string_of[info.name];
    info.type = string_of[info.type];
    if (info.group >= 0) info.group = group_of[static_cast<std::size_t>(info.group)];
    info_of.push_back(tables.info(info));
  }
  for (RankTrace& rank : part.ranks) {
    for (Event& event : rank.events) event.info = info_of[event.info];
    for (std::uint32_t& lane : rank.lanes) lane = string_of[lane];
    for (auto& [event, stack] : rank.stacks) stack = string_of[stack];
    for (auto& [group, number] : rank.newest) group = group_of[static_cast<std::size_t>(group)];
    for (auto& [group, place] : rank.places) group = group_of[static_cast<std::size_t>(group)];
    into.ranks.push_back(std::move(rank));
  }
  for (const auto& [problem, count] : part.problems) into.problems[problem] += count;
  for (const auto& [category, ns] : part.unknown_device_ns) into.unknown_device_ns[category] += ns;
  into.device_ns += part.device_ns;
  into.unusable.insert(into.unusable.end(), part.unusable.begin(), part.unusable.end());
  into.witnesses.add(std::move(part.witnesses));
}

}  // namespace ms::tracepp
