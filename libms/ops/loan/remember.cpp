// The memory of a planner: what it keeps of the views that it saw.
#include <algorithm>
#include <set>

#include "loan/plan.h"
#include "slurm/hostlist.h"

namespace ms::loan {
namespace {

constexpr double kQueuedWithin_s = 120;  // by Slurm, after a job has asked for it

}  // namespace

Usage usage_of(const View& view) {
  Usage usage;
  int has = 0;
  for (const LiveNode& node : view.nodes) {
    if (!node.trouble.empty()) continue;
    ++usage.nodes;
    usage.training += !node.jobs.empty();
    has += !node.on_loan && node.jobs.empty();
  }
  usage.inference = std::min(view.demand_nodes, has);
  return usage;
}

namespace {

void remember_starts(Memory& memory, const View& view) {
  std::map<std::uint32_t, int> running;
  for (const Start& start : view.started) {
    running[start.job] = start.restarts;
    const auto counted = memory.started.find(start.job);
    if (counted != memory.started.end() && counted->second == start.restarts) continue;
    ++memory.starts;
    memory.starts_waited_s += start.waited_s;
    memory.waited_s.push_back(start.waited_s);
    // A run that was asked to grow has been queued again; here Slurm was the first to start it.
    memory.grown += static_cast<std::int64_t>(memory.growing.erase(start.job));
  }
  memory.started = std::move(running);
  if (memory.waited_s.size() > kMostWaits)
    memory.waited_s.erase(memory.waited_s.begin(), memory.waited_s.end() - kMostWaits);
}

// Whether the job has one of these nodes.
bool has_any(const View& view, std::uint32_t job, const std::vector<std::string>& nodes) {
  return std::ranges::any_of(view.nodes, [&](const LiveNode& node) {
    const auto is_job = [&](int index) { return view.jobs[static_cast<std::size_t>(index)].id == job; };
    return std::ranges::any_of(node.jobs, is_job) && std::ranges::count(nodes, node.name) > 0;
  });
}

void remember_sizes(Memory& memory, const View& view) {
  std::map<std::uint32_t, Sized> sized;
  for (const LiveJob& job : view.jobs) {
    Sized now{.nodes = job.nodes, .since_s = view.now_s};
    const auto before = memory.sized.find(job.id);
    if (before != memory.sized.end() && job.nodes <= before->second.nodes)
      now.since_s = std::min(before->second.since_s, view.now_s);
    sized[job.id] = now;
  }
  memory.sized = std::move(sized);
}

// Nodes that are on loan again. A run that has one still did not let go of it: it has time to settle.
void remember_handing(Memory& memory, const View& view) {
  std::set<std::string> away;
  for (const LiveNode& node : view.nodes) {
    if (!node.on_loan) away.insert(node.name);
  }
  std::erase_if(memory.handing, [&](const auto& entry) {
    const auto& [node, handing] = entry;
    if (away.contains(node)) return false;
    const auto sized = memory.sized.find(handing.run);
    if (sized != memory.sized.end() && has_any(view, handing.run, {node})) sized->second.since_s = view.now_s;
    return true;
  });
}

}  // namespace

void remember(Memory& memory, const View& view, const Policy& policy) {
  const double since_s = view.now_s - memory.seen_s;
  remember_starts(memory, view);
  remember_sizes(memory, view);
  remember_handing(memory, view);
  if (memory.seen_s != 0 && since_s > 0 && since_s <= policy.loan.lend_interval_s) {
    const Usage usage = usage_of(view);
    memory.node_s += since_s * usage.nodes;
    memory.inference_s += since_s * usage.inference;
    memory.training_s += since_s * usage.training;
  }
  if (memory.seen_s == 0 || since_s < 0 || since_s > policy.loan.lend_interval_s) {
    memory.watched_from_s = view.now_s;
    memory.demand.clear();
  }
  // A clock that was set back must not make a notice endless.
  memory.lent_s = std::min(memory.lent_s, view.now_s);
  for (auto& [job, noticed_s] : memory.notices) noticed_s = std::min(noticed_s, view.now_s);
  for (auto& [node, asked_s] : memory.leaving) asked_s = std::min(asked_s, view.now_s);
  for (auto& [job, asked_s] : memory.growing) asked_s = std::min(asked_s, view.now_s);
  for (auto& [node, handing] : memory.handing) handing.since_s = std::min(handing.since_s, view.now_s);
  memory.scaled_s = std::min(memory.scaled_s, view.now_s);
  memory.seen_s = view.now_s;
  std::vector<std::pair<double, int>>& demand = memory.demand;
  if (demand.empty() || demand.back().second != view.demand_nodes) demand.emplace_back(view.now_s, view.demand_nodes);
  // The value that held when the window began is part of it.
  while (demand.size() > 1 && demand[1].first <= view.now_s - policy.loan.reserve_window_s)
    demand.erase(demand.begin());
  std::set<std::uint32_t> losing, running;
  for (const LiveJob& job : view.jobs) running.insert(job.id);
  // One that still runs has refused, or saves: the next round may ask it again. One that neither runs nor waits may be
  // on its way to the queue.
  std::erase_if(memory.growing, [&](const auto& asked) {
    const bool waits = std::ranges::count(view.waiting, asked.first) > 0;
    const double patience_s = running.contains(asked.first) ? 0 : kQueuedWithin_s;
    return !waits && view.now_s >= asked.second + policy.schedule.interval_s + patience_s;
  });
  std::set<std::string> leaving;
  for (const LiveNode& node : view.nodes) {
    if (node.on_loan || !node.trouble.empty()) continue;
    for (const int job : node.jobs) losing.insert(view.jobs[static_cast<std::size_t>(job)].id);
    if (!node.jobs.empty()) leaving.insert(node.name);
  }
  std::erase_if(memory.notices, [&](const auto& notice) {
    if (losing.contains(notice.first)) return false;
    // One that saved and had itself queued again.
    memory.preemptions += std::ranges::count(view.waiting, notice.first);
    return true;
  });
  std::erase_if(memory.asked, [&](const auto& asked) {
    if (losing.contains(asked.first)) return false;
    memory.shrunk +=
        running.contains(asked.first) &&
        !has_any(view, asked.first, slurm::expand_hostlist(asked.second).value_or(std::vector<std::string>{}));
    return true;
  });
  std::erase_if(memory.leaving, [&](const auto& node) {
    if (leaving.contains(node.first)) return false;
    const double took_s = view.now_s - node.second;
    ++memory.returned;
    memory.returned_s += took_s;
    memory.returned_max_s = std::max(memory.returned_max_s, took_s);
    return true;
  });
  for (const std::string& node : leaving) memory.leaving.try_emplace(node, view.now_s);
}

}  // namespace ms::loan
