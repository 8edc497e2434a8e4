#include "loan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "loan/extras.h"
#include "loan/replay.h"
#include "loan/victims.h"
#include "slurm/hostlist.h"

namespace ms::loan {
namespace {

constexpr std::array<std::string_view, 7> kSteps = {"lend", "reclaim", "shrink", "notify", "requeue", "grow", "start"};

class Planner {
 public:
  Planner(const View& view, const Memory& memory, const Policy& policy)
      : view_(view),
        memory_(memory),
        policy_(policy),
        loan_(policy.loan),
        notice_s_(notice_s(policy, view.kill_wait_s)) {
    for (const LiveNode& node : view.nodes) {
      usable_ += node.trouble.empty();
      loaned_ += node.trouble.empty() && node.on_loan;
      if (node.on_loan) on_loan_.insert(node.name);
    }
  }

  Plan plan() {
    reclaim();
    hand_over();
    lend();
    if (may_shrink()) shrink_for_waiting();
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
  // While inference takes nodes back it is not known what is left.
  bool may_shrink() const {
    const bool goes_back = std::ranges::any_of(view_.nodes, [&](const LiveNode& node) {
      return !is_on_loan(node) && !node.jobs.empty() && node.trouble.empty() && !memory_.handing.contains(node.name);
    });
    return loan_.shrink && !view_.wants.empty() && !goes_back && needed() <= usable_ - loaned_;
  }
  bool lacks_nodes() const {
    const BaseDemand demand = meet_base_demand(view_, memory_, policy_, free_for_waiting());
    return may_shrink() && (demand.job || !demand.notes.empty());
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

  // Nodes that runs gave up for jobs that wait go to these, unless inference needs them now. One that its run has kept
  // for the notice stays with it.
  void hand_over() {
    int spare = usable_ - loaned_ - needed();
    for (const auto& [name, handing] : memory_.handing) {
      const auto node = std::ranges::find(view_.nodes, name, &LiveNode::name);
      if (node == view_.nodes.end() || is_on_loan(*node)) continue;
      if (!node->trouble.empty()) {
        plan_.handing.emplace(name, handing);
        continue;
      }
      if (--spare < 0) continue;
      const bool free = node->jobs.empty(), late = view_.now_s >= handing.since_s + notice_s_;
      // A job of inference has taken it, or Slurm was asked for its state before the run let go of it.
      const bool taken = free && !node->idle && !node->completing;
      if (!taken || !late) plan_.handing.emplace(name, handing);
      if (taken || (!free && !late)) continue;
      on_loan_.insert(name);
      plan_.actions.push_back(
          {.step = Step::lend,
           .node = name,
           .reason = free ? fmt::format("job {} has let go of it, and job {} waits", handing.run, handing.job)
                          : fmt::format("job {} has not let go of it in {}, and keeps it", handing.run,
                                        format_duration(notice_s_))});
    }
  }

  // Nodes that jobs which wait get without anybody shrinking.
  std::vector<std::string> free_for_waiting() const {
    std::vector<std::string> free;
    for (const LiveNode& node : view_.nodes) {
      const bool is_free = is_on_loan(node) && node.jobs.empty() && (node.idle || node.completing);
      const bool is_coming = !is_on_loan(node) && plan_.handing.contains(node.name);
      if (node.trouble.empty() && (is_free || is_coming)) free.push_back(node.name);
    }
    return free;
  }

  void shrink_for_waiting() {
    const BaseDemand demand = meet_base_demand(view_, memory_, policy_, free_for_waiting());
    for (const std::string& note : demand.notes) plan_.notes.push_back(note);
    for (const Release& release : demand.releases) {
      const LiveJob& run = job_of(release.job);
      const int nodes = run.nodes - static_cast<int>(release.nodes.size());
      plan_.actions.push_back(
          {.step = Step::shrink,
           .job = run.id,
           .reason = fmt::format("job {} waits for {} and {} free: from {} to {}, {}", demand.job->id,
                                 plural(static_cast<std::size_t>(demand.job->nodes), "node"),
                                 demand.idle == 1 ? "1 is" : fmt::format("{} are", demand.idle), run.nodes, nodes,
                                 speed_words(run, nodes))});
      for (const std::string& node : release.nodes) {
        on_loan_.erase(node);
        plan_.handing[node] = {.run = run.id, .job = demand.job->id, .since_s = view_.now_s};
      }
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
      const bool keeps = std::ranges::all_of(nodes, [&](const auto& name) { return plan_.handing.contains(name); });
      const auto notice = memory_.notices.find(job);
      const auto before = memory_.asked.find(job);
      if (!asked.empty() &&
          (notice == memory_.notices.end() || (before != memory_.asked.end() && before->second != asked))) {
        plan_.actions.push_back(
            {.step = Step::notify,
             .job = job,
             .nodes = asked,
             .reason = fmt::format("the run is asked for {}, and in {} {} if it has them still", asked,
                                   format_duration(notice_s_), keeps ? "keeps them" : "goes to the queue")});
      } else if (notice == memory_.notices.end()) {
        plan_.actions.push_back({.step = Step::notify,
                                 .job = job,
                                 .reason = fmt::format("{} goes back, and with it in {} the job to the queue", node,
                                                       format_duration(notice_s_))});
      } else if (view_.now_s >= notice->second + notice_s_) {
        plan_.actions.push_back({.step = Step::requeue, .job = job, .reason = fmt::format("{} goes back", node)});
      } else {
        plan_.notes.push_back(fmt::format("job {} has {} to save, then {} goes back", job,
                                          format_duration(notice->second + notice_s_ - view_.now_s), node));
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

  // An elastic run takes what no other job wants, as the knapsack of a replay gives it.
  void grow() {
    const int idle = idle_on_loan();
    const std::optional<Growth> growth = choose_growth(view_, memory_, policy_, idle);
    if (!growth) return;
    const LiveJob& job = job_of(growth->job);
    plan_.actions.push_back({.step = Step::grow,
                             .job = job.id,
                             .reason = fmt::format("{} idle on loan and no job waits: from {} to {}, {}",
                                                   plural(static_cast<std::size_t>(idle), "node"), job.nodes,
                                                   growth->nodes, speed_words(job, growth->nodes))});
  }

  const View& view_;
  const Memory& memory_;
  const Policy& policy_;
  const LoanConfig& loan_;
  const double notice_s_;
  int usable_ = 0, loaned_ = 0;  // nodes without trouble, and of these the ones on loan
  std::set<std::string> on_loan_;
  Plan plan_;
};

}  // namespace

std::string_view to_string(Step step) { return kSteps[static_cast<std::size_t>(step)]; }

bool takes_back(const View& view, const Policy& policy) { return Planner(view, {}, policy).takes_back(); }

bool may_grow(const View& view, const Memory& memory, const Policy& policy) {
  return Planner(view, memory, policy).may_grow();
}

Plan make_plan(const View& view, const Memory& memory, const Policy& policy) {
  return Planner(view, memory, policy).plan();
}

bool may_shrink(const View& view, const Memory& memory, const Policy& policy) {
  return Planner(view, memory, policy).lacks_nodes();
}

double notice_s(const Policy& policy, double kill_wait_s) {
  const double left_s = policy.loan.return_s() - kill_wait_s - policy.slurm.end_s;
  if (left_s >= 0) return left_s;
  throw user_error("loan.grace",
                   fmt::format("loan.grace {} cannot hold: loan.poll is {}, Slurm's KillWait {} and slurm.end {}",
                               format_duration(policy.loan.grace_s), format_duration(policy.loan.poll_s),
                               format_duration(kill_wait_s), format_duration(policy.slurm.end_s)),
                   "raise loan.grace to their sum and what jobs need to save, or lower KillWait in slurm.conf");
}

double next_look_s(const Memory& memory, const Policy& policy, double notice_s, double now_s) {
  double wait_s = policy.loan.poll_s;
  for (const auto& [job, since_s] : memory.notices) {
    const double left_s = since_s + notice_s - now_s;
    if (left_s > 0) wait_s = std::min(wait_s, left_s);
  }
  return wait_s;
}

}  // namespace ms::loan
