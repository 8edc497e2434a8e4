#include "tracepp/read/process_groups.h"

#include <fmt/format.h>

#include <algorithm>

#include "tracepp/read/trace_names.h"

namespace ms::tracepp {

void ProcessGroups::add(const std::string& name, const std::string& description, const std::vector<int>& ranks) {
  Known& known = known_[name];
  if (!description.empty()) known.description = description;
  if (!ranks.empty()) known.ranks = ranks;
}

ProcessGroup ProcessGroups::group(const std::string& name, const std::string& description,
                                  const std::vector<int>& ranks) const {
  const auto known = known_.find(name);
  const bool is_known = known != known_.end();
  const std::string& about = description.empty() && is_known ? known->second.description : description;
  ProcessGroup group;
  group.name =
      about.empty() || about == "undefined" ? fmt::format("group {}", name) : fmt::format("{} {}", about, name);
  group.ranks = ranks.empty() && is_known ? known->second.ranks : ranks;
  group.axis = axis_of_description(about);
  return group;
}

std::string_view ProcessGroups::description(const ProcessGroup& group) {
  const std::string_view about = std::string_view(group.name).substr(0, group.name.find(' '));
  return about == "group" ? std::string_view() : about;
}

std::vector<std::string> ProcessGroups::names() const {
  std::vector<std::string> names;
  for (const auto& [name, known] : known_)
    if (!known.ranks.empty()) names.push_back(name);
  return names;
}

std::optional<ProcessGroup> ProcessGroups::sole() const {
  if (known_.empty()) return std::nullopt;
  const auto& first = *known_.begin();  // no names for its parts: clang 14 does not take them into lambdas
  const std::vector<int>& ranks = first.second.ranks;
  const bool alike = std::ranges::all_of(known_, [&](const auto& it) { return it.second.ranks == ranks; });
  return alike && !ranks.empty() ? std::optional(group(first.first, "", {})) : std::nullopt;
}

ProcessGroup ProcessGroups::channel(const ProcessGroup& group, int from, int to) {
  return {.name = fmt::format("{} {}>{}", group.name, from, to), .ranks = {from, to}, .axis = group.axis};
}

std::size_t ProcessGroups::largest() const {
  std::size_t most = 0;
  for (const auto& [name, known] : known_)
    if (!name.empty()) most = std::max(most, known.ranks.size());
  return most;
}

int peer_of(const ProcessGroup& group, const std::vector<int>& sorted, int number, int self) {
  const bool is_member = std::ranges::binary_search(sorted, number);
  if (is_member && number != self) return number;
  const auto place = static_cast<std::size_t>(number);
  return number >= 0 && place < group.ranks.size() ? group.ranks[place] : number;
}

}  // namespace ms::tracepp
