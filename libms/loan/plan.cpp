#include "loan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/text.h"
#include "loan/knapsack.h"
#include "loan/replay.h"
#include "loan/victims.h"
#include "slurm/hostlist.h"

namespace ms::loan {
namespace {

constexpr std::array<std::string_view, 6> kSteps = {"lend", "reclaim", "notify", "requeue", "grow", "start"};

class Planner {
 public:
  Planner(const View& view, const Memory& memory, const Policy& policy)
      : view_(view), memory_(memory), policy_(policy), loan_(policy.loan) {
    for (const LiveNode& node : view.nodes) {
      usable_ += node.trouble.empty();
      loaned_ += node.trouble.empty() && node.on_loan;
      if (node.on_loan) on_loan_.insert(node.name);
    }
  }

  Plan plan() {
    reclaim();
    lend();
    end_jobs();
    start_grown();
    if (may_grow()) grow();
    plan_.on_loan.assign(on_loan_.begin(), on_loan_.end());
    return std::move(plan_);
  }
  bool takes_back() const {
    const bool comes_back =
        std::ranges::any_of(view_.nodes, [&](const LiveNode& node) { return !is_on_loan(node) && !node.jobs.empty(); });
    return comes_back || needed() > usable_ - loaned_;
  }
  bool may_grow() const {
    return loan_.grow && view_.waiting.empty() && !takes_back() && idle_on_loan() > 0 &&
           view_.now_s >= memory_.scaled_s + policy_.schedule.interval_s;
  }

 private:
  // Nodes that were on loan before this plan: Slurm has had the time to give them to whoever waits.
  int idle_on_loan() const {
    return static_cast<int>(std::ranges::count_if(view_.nodes, [&](const LiveNode& node) {
      return node.on_loan && is_on_loan(node) && node.idle && node.jobs.empty() && node.trouble.empty();
    }));
  }
  const LiveJob& job_of(int job) const { return view_.jobs[static_cast<std::size_t>(job)]; }
  int needed() const { return std::min(needed_nodes(view_.demand_nodes, loan_), usable_); }
  bool is_on_loan(const LiveNode& node) const { return on_loan_.contains(node.name); }
  // A job that goes to the queue anyway: one that was asked for single nodes does not.
  bool ends(int job) const {
    return memory_.notices.contains(job_of(job).id) && !memory_.asked.contains(job_of(job).id);
  }

  // Elastic runs let go of nodes rather than that a job ends; theirs count as empty then.
  void shrink(std::vector<LoanedNode>& nodes, int count) const {
    std::map<int, int> kept;
    for (std::size_t job = 0; job < view_.jobs.size(); ++job) kept[static_cast<int>(job)] = view_.jobs[job].nodes;
    for (const LiveNode& node : view_.nodes) {
      if (is_on_loan(node)) continue;
      for (const int job : node.jobs) --kept[job];
    }
    for (const LoanedNode& node : nodes) count -= node.jobs.empty();
    for (LoanedNode& node : nodes) {
      const std::string& name = view_.nodes[static_cast<std::size_t>(node.id)].name;
      const auto gives = [&](int job) {
        const LiveJob& live = job_of(job);
        return live.least_nodes > 0 && live.batch_node != name && kept[job] > live.least_nodes;
      };
      if (count <= 0) return;
      if (node.jobs.empty() || !std::ranges::all_of(node.jobs, gives)) continue;
      for (const int job : node.jobs) --kept[job];
      node.jobs.clear();
      --count;
    }
  }

  void reclaim() {
    const int needed = this->needed();
    const int has = usable_ - loaned_;  // or will have, without asking for more
    if (needed <= has) return;
    std::vector<LoanedNode> nodes;
    for (std::size_t n = 0; n < view_.nodes.size(); ++n) {
      if (!view_.nodes[n].on_loan || !view_.nodes[n].trouble.empty()) continue;
      nodes.push_back({.id = static_cast<int>(n), .jobs = view_.nodes[n].jobs});
      std::erase_if(nodes.back().jobs, [&](int job) { return ends(job); });
    }
    shrink(nodes, needed - has);
    std::vector<LoanedJob> jobs;
    for (const LiveJob& job : view_.jobs) jobs.push_back({.nodes = job.nodes});
    const Victims victims = pick_victims(nodes, jobs, needed - has, VictimRule::cost);
    for (const int id : victims.nodes) {
      const std::string& node = view_.nodes[static_cast<std::size_t>(id)].name;
      on_loan_.erase(node);
      plan_.actions.push_back({.step = Step::reclaim,
                               .node = node,
                               .reason = fmt::format("inference needs {}, and has {}",
                                                     plural(static_cast<std::size_t>(needed), "node"), has)});
    }
  }

  void lend() {
    int has = 0;
    std::vector<std::string> idle;
    for (const LiveNode& node : view_.nodes) {
      if (!node.trouble.empty() || is_on_loan(node) || !node.jobs.empty()) continue;
      ++has;
      if (node.idle && !node.on_loan) idle.push_back(node.name);
    }
    const int kept = kept_nodes({.steps = memory_.demand}, loan_, view_.now_s);
    const int count = std::min(has - kept, static_cast<int>(idle.size()));
    if (count <= 0) return;
    const double watched_s = view_.now_s - memory_.watched_from_s;
    const double wait_s =
        std::max(loan_.reserve_window_s - watched_s, memory_.lent_s + loan_.lend_interval_s - view_.now_s);
    if (wait_s > 0) {
      plan_.notes.push_back(fmt::format(
          "{} could go on loan in {}: {}", plural(static_cast<std::size_t>(count), "node"), format_duration(wait_s),
          watched_s < loan_.reserve_window_s ? "demand was not yet watched for loan.reserve_window"
                                             : "loan.lend_interval"));
      return;
    }
    for (int i = 0; i < count; ++i) {
      const std::string& node = idle[static_cast<std::size_t>(i)];
      on_loan_.insert(node);
      plan_.actions.push_back(
          {.step = Step::lend, .node = node, .reason = fmt::format("it is idle, inference keeps {} of {}", kept, has)});
    }
  }

  // The nodes that an elastic run is asked for, of those that it is going to lose; empty: it has to end.
  std::string asks(const LiveJob& job, const std::vector<std::string>& losing) const {
    const bool keeps_least = job.nodes - static_cast<int>(losing.size()) >= job.least_nodes;
    if (job.least_nodes == 0 || !keeps_least || std::ranges::count(losing, job.batch_node) > 0) return "";
    return slurm::fold_hostlist(losing);
  }

  // Jobs with a node that is not on loan any more: a signal, and when the notice is over the queue.
  void end_jobs() {
    std::map<int, std::vector<std::string>> losing;
    for (const LiveNode& node : view_.nodes) {
      if (is_on_loan(node) || !node.trouble.empty()) continue;
      for (const int job : node.jobs) losing[job].push_back(node.name);
    }
    for (const auto& [index, nodes] : losing) {
      const LiveJob& live = job_of(index);
      const std::uint32_t job = live.id;
      const std::string& node = nodes.front();
      const std::string asked = asks(live, nodes);
      const auto notice = memory_.notices.find(job);
      const auto before = memory_.asked.find(job);
      if (!asked.empty() &&
          (notice == memory_.notices.end() || (before != memory_.asked.end() && before->second != asked))) {
        plan_.actions.push_back(
            {.step = Step::notify,
             .job = job,
             .nodes = asked,
             .reason = fmt::format("the run is asked for {}, and in {} goes to the queue if it has them still", asked,
                                   format_duration(loan_.notice_s()))});
      } else if (notice == memory_.notices.end()) {
        plan_.actions.push_back({.step = Step::notify,
                                 .job = job,
                                 .reason = fmt::format("{} goes back, and with it in {} the job to the queue", node,
                                                       format_duration(loan_.notice_s()))});
      } else if (view_.now_s >= notice->second + loan_.notice_s()) {
        plan_.actions.push_back({.step = Step::requeue, .job = job, .reason = fmt::format("{} goes back", node)});
      } else {
        plan_.notes.push_back(fmt::format("job {} has {} to save, then {} goes back", job,
                                          format_duration(notice->second + loan_.notice_s() - view_.now_s), node));
      }
    }
  }

  // A run that was queued again need not wait for Slurm's whole delay.
  void start_grown() {
    for (const std::uint32_t job : view_.waiting) {
      if (!memory_.growing.contains(job)) continue;
      plan_.actions.push_back({.step = Step::start, .job = job, .reason = "it has saved, and waits for more nodes"});
    }
  }

  // An elastic run takes what nobody else wants, as the knapsack of a replay gives it: without a history of theirs, all
  // of them have schedule.horizon left and are as fast as their nodes. One run at a time, that which gains most: Slurm
  // gives a job that starts all nodes that it may have, those of a run that waits beside it, too.
  void grow() {
    std::vector<int> jobs;
    std::vector<Group> groups;
    for (std::size_t index = 0; index < view_.jobs.size(); ++index) {
      const LiveJob& job = view_.jobs[index];
      if (job.sizes.empty() || memory_.growing.contains(job.id)) continue;
      Group group;
      for (const int size : job.sizes) {
        const double saved_s = policy_.schedule.horizon_s * (1 - static_cast<double>(job.nodes) / size);
        group.push_back({.weight = size - job.nodes, .value = saved_s - policy_.jobs.scale_overhead_s});
      }
      jobs.push_back(static_cast<int>(index));
      groups.push_back(std::move(group));
    }
    const int idle = idle_on_loan();
    const Extras extras = solve_knapsack(groups, idle);
    std::optional<std::size_t> best;
    const auto chosen = [&](std::size_t i) { return groups[i][static_cast<std::size_t>(extras.item[i])]; };
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (extras.item[i] >= 0 && (!best || chosen(i).value > chosen(*best).value)) best = i;
    }
    if (!best) return;
    const LiveJob& job = job_of(jobs[*best]);
    plan_.actions.push_back({.step = Step::grow,
                             .job = job.id,
                             .reason = fmt::format("{} idle on loan and nobody waits: from {} to {}",
                                                   plural(static_cast<std::size_t>(idle), "node"), job.nodes,
                                                   job.nodes + chosen(*best).weight)});
  }

  const View& view_;
  const Memory& memory_;
  const Policy& policy_;
  const LoanConfig& loan_;
  int usable_ = 0, loaned_ = 0;  // nodes without trouble, and of these the ones on loan
  std::set<std::string> on_loan_;
  Plan plan_;
};

}  // namespace

std::string_view to_string(Step step) { return kSteps[static_cast<std::size_t>(step)]; }

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
  }
  memory.started = std::move(running);
  if (memory.waited_s.size() > kMostWaits)
    memory.waited_s.erase(memory.waited_s.begin(), memory.waited_s.end() - kMostWaits);
}

}  // namespace

void remember(Memory& memory, const View& view, const Policy& policy) {
  const double since_s = view.now_s - memory.seen_s;
  remember_starts(memory, view);
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
  memory.scaled_s = std::min(memory.scaled_s, view.now_s);
  memory.seen_s = view.now_s;
  std::vector<std::pair<double, int>>& demand = memory.demand;
  if (demand.empty() || demand.back().second != view.demand_nodes) demand.emplace_back(view.now_s, view.demand_nodes);
  // The value that held when the window began is part of it.
  while (demand.size() > 1 && demand[1].first <= view.now_s - policy.loan.reserve_window_s)
    demand.erase(demand.begin());
  std::set<std::uint32_t> losing, running;
  for (const LiveJob& job : view.jobs) running.insert(job.id);
  // One that still runs has refused, or saves: the next round may ask it again.
  std::erase_if(memory.growing, [&](const auto& asked) {
    const bool waits = std::ranges::count(view.waiting, asked.first) > 0;
    return !waits && view.now_s >= asked.second + policy.schedule.interval_s;
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
    memory.shrunk += running.contains(asked.first);
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

bool takes_back(const View& view, const Policy& policy) { return Planner(view, {}, policy).takes_back(); }

bool may_grow(const View& view, const Memory& memory, const Policy& policy) {
  return Planner(view, memory, policy).may_grow();
}

Plan make_plan(const View& view, const Memory& memory, const Policy& policy) {
  return Planner(view, memory, policy).plan();
}

double next_look_s(const Memory& memory, const Policy& policy, double now_s) {
  double wait_s = policy.loan.poll_s;
  for (const auto& [job, since_s] : memory.notices) {
    const double left_s = since_s + policy.loan.notice_s() - now_s;
    if (left_s > 0) wait_s = std::min(wait_s, left_s);
  }
  return wait_s;
}

}  // namespace ms::loan
