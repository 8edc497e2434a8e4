// Implements outliers of judge.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "driver/judge.h"

namespace ms::driver {
namespace {

constexpr double kBusyTask = 0.5, kIdleTask = 0.1;  // processors

// The nodes of those tasks for which `stands_out`, and what to say of them.
template <class F>
std::vector<std::string> nodes_where(const std::vector<NodeTask>& tasks, F&& stands_out, std::string_view what,
                                     std::string& why) {
  std::vector<std::string> nodes, ranks;
  for (const NodeTask& t : tasks) {
    if (!stands_out(t)) continue;
    if (std::ranges::count(nodes, t.node) == 0) nodes.push_back(t.node);
    ranks.push_back(fmt::format("{} on {}", t.task.rank, t.node));
  }
  if (!nodes.empty()) why = fmt::format("rank {} {}", fmt::join(ranks, ", "), what);
  return nodes;
}

}  // namespace

std::vector<std::string> outliers(const std::vector<NodeTask>& tasks, std::string& why) {
  std::int64_t most_steps = -1;
  for (const NodeTask& t : tasks) most_steps = std::max(most_steps, t.step);
  const auto stopped = [](const NodeTask& t) { return t.task.state == 'T' || t.task.state == 't'; };
  const auto gone = [](const NodeTask& t) { return t.task.state == 'Z' || t.task.state == 'X'; };
  const auto blocked = [](const NodeTask& t) { return t.task.state == 'D'; };
  const auto behind = [&](const NodeTask& t) { return t.step >= 0 && t.step < most_steps; };
  const auto busy = [](const NodeTask& t) { return t.task.cpu >= kBusyTask; };
  const auto idle = [](const NodeTask& t) { return t.task.cpu >= 0 && t.task.cpu <= kIdleTask; };
  const auto few = [&](const auto& is, std::size_t times) {
    const auto number = static_cast<std::size_t>(std::ranges::count_if(tasks, is));
    return number > 0 && times * number <= tasks.size();
  };
  // A task that is accused by itself needs half of them to be different, one that is compared with the others two
  // thirds.
  if (few(stopped, 2)) return nodes_where(tasks, stopped, "is stopped by a signal", why);
  if (few(gone, 2)) return nodes_where(tasks, gone, "is gone", why);
  // Who waits for a rank has done its part of the step; who is waited for has not.
  if (few(behind, 2)) return nodes_where(tasks, behind, "is a step behind all others", why);
  if (few(blocked, 2)) return nodes_where(tasks, blocked, "waits for a device or a file system", why);
  const bool clear = std::ranges::all_of(tasks, [&](const NodeTask& t) { return busy(t) || idle(t); });
  if (clear && few(busy, 3)) return nodes_where(tasks, busy, "computes while all others wait", why);
  if (clear && few(idle, 3)) return nodes_where(tasks, idle, "sleeps while all others poll", why);
  return {};
}

}  // namespace ms::driver
