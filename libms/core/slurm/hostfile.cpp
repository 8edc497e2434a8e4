#include "slurm/hostfile.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "slurm/hostlist.h"

namespace ms::slurm {
namespace {

constexpr std::size_t kMaxShown = 80;  // of a line, in an error

std::optional<int> parse_number(std::string_view text, int most) {
  const auto value = whole_number<int>(text);
  return value && *value >= 1 && *value <= most ? value : std::nullopt;
}

Error bad_hostfile(std::string_view source, int line, std::string_view what, std::string hint = {}) {
  return user_error("slurm.hostfile", fmt::format("{}:{}: {}", source, line, what), std::move(hint));
}

// "2(x3),1" -> 2 2 2 1
std::optional<std::vector<int>> parse_tasks_per_node(std::string_view text) {
  std::vector<int> tasks;
  for (std::string_view part : split(text, ',')) {
    int times = 1;
    if (const std::size_t open = part.find("(x"); open != std::string_view::npos && part.ends_with(')')) {
      const auto repeated = parse_number(part.substr(open + 2, part.size() - open - 3), static_cast<int>(kMaxHosts));
      if (!repeated) return std::nullopt;
      times = *repeated;
      part = part.substr(0, open);
    }
    const auto number = parse_number(part, kMaxSlots);
    if (!number || tasks.size() + static_cast<std::size_t>(times) > kMaxHosts) return std::nullopt;
    tasks.insert(tasks.end(), static_cast<std::size_t>(times), *number);
  }
  return tasks;
}

}  // namespace

std::vector<HostSlots> parse_hostfile(std::string_view text, std::string_view source) {
  constexpr std::string_view kForms = "a line is HOST, HOST slots=N or HOST:N, where HOST may be a hostlist";
  constexpr std::string_view kSlots = "slots=";
  std::vector<HostSlots> hosts;
  std::map<std::string, int, std::less<>> seen;  // host -> line
  int line = 0;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view words = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), words.size() + 1));
    ++line;
    words = trim(words.substr(0, words.find('#')));
    if (words.empty()) continue;
    const std::size_t blank = words.find_first_of(" \t");
    std::string_view names = words.substr(0, blank);
    std::string_view slots = blank == std::string_view::npos ? std::string_view{} : trim(words.substr(blank));
    const bool named = !slots.empty();
    if (named && !slots.starts_with(kSlots)) {
      throw bad_hostfile(source, line, fmt::format("'{}' is not understood", printable(slots, kMaxShown)),
                         std::string(kForms));
    }
    if (named) slots.remove_prefix(kSlots.size());
    if (const std::size_t colon = names.find(':'); colon != std::string_view::npos) {
      if (named) throw bad_hostfile(source, line, "the slots stand there twice, as :N and as slots=N");
      slots = names.substr(colon + 1);
      names = names.substr(0, colon);
      if (slots.empty()) slots = ":";  // no number either
    }
    const auto number =
        slots.empty() && !named ? std::optional<int>(HostSlots{}.slots) : parse_number(slots, kMaxSlots);
    if (!number) {
      throw bad_hostfile(
          source, line,
          fmt::format("'{}' is not a number of slots from 1 to {}", printable(slots, kMaxShown), kMaxSlots));
    }
    const auto expanded = expand_hostlist(names);
    if (!expanded || expanded->empty()) {
      throw bad_hostfile(source, line, fmt::format("'{}' is no host and no hostlist", printable(names, kMaxShown)),
                         std::string(kForms));
    }
    for (const std::string& name : *expanded) {
      const auto [first, is_new] = seen.emplace(name, line);
      if (!is_new) {
        throw bad_hostfile(source, line, fmt::format("host {} is there twice, first in line {}", name, first->second),
                           "name a host once, with all its slots");
      }
      hosts.push_back({.name = name, .slots = *number});
    }
    if (hosts.size() > kMaxHosts) throw bad_hostfile(source, line, fmt::format("more than {} hosts", kMaxHosts));
  }
  if (hosts.empty()) throw user_error("slurm.hostfile", fmt::format("{} names no host", source), std::string(kForms));
  return hosts;
}

std::vector<HostSlots> job_hosts(const Getenv& getenv) {
  const char* const list = getenv("SLURM_JOB_NODELIST");
  const char* const tasks = getenv("SLURM_TASKS_PER_NODE");
  if (list == nullptr || tasks == nullptr) {
    throw user_error("slurm.hostfile",
                     fmt::format("{} is not set: this is no Slurm job",
                                 list == nullptr ? "SLURM_JOB_NODELIST" : "SLURM_TASKS_PER_NODE"),
                     "name a file of hosts; ./slurm is a file called slurm");
  }
  const std::vector<std::string> names = expand_hostlist_or_throw(list);
  const auto slots = parse_tasks_per_node(tasks);
  if (!slots || slots->size() != names.size() || names.empty()) {
    throw user_error("slurm.hostfile",
                     fmt::format("SLURM_TASKS_PER_NODE '{}' does not go with the {} nodes of '{}'",
                                 printable(tasks, kMaxShown), names.size(), printable(list, kMaxShown)));
  }
  std::vector<HostSlots> hosts;
  for (std::size_t i = 0; i < names.size(); ++i) hosts.push_back({.name = names[i], .slots = (*slots)[i]});
  return hosts;
}

}  // namespace ms::slurm
