#include "loan/why_waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "loan/replay.h"

namespace ms::loan {
namespace {

constexpr std::size_t kReasonChars = 60;
constexpr int kNoLimit_days = 100;  // Slurm gives a year to jobs without a time limit
constexpr double kNoLimit_s = kNoLimit_days * 86400.0;

bool is_wanted(const WaitingJob& job, const LiveNode& node) {
  return node.trouble.empty() && std::ranges::count(job.excluded, node.name) == 0;
}

// How long the jobs of a node may still take, by their time limits.
double left_s(const View& view, const LiveNode& node) {
  double longest_s = 0;
  for (const int job : node.jobs) longest_s = std::max(longest_s, view.jobs[static_cast<std::size_t>(job)].left_s);
  return longest_s;
}

std::string nodes_text(int count) { return plural(static_cast<std::size_t>(count), "node"); }

// Says how many nodes on loan the job may use, and when enough of them are free.
std::string when(const View& view, const WaitingJob& job) {
  std::vector<double> free_in_s;
  int idle = 0, cleaned = 0;
  for (const LiveNode& node : view.nodes) {
    if (!node.on_loan || !is_wanted(job, node)) continue;
    if (node.jobs.empty() && !node.idle && !node.completing) continue;  // of inference
    idle += node.idle;
    cleaned += node.completing;
    free_in_s.push_back(left_s(view, node));
  }
  std::sort(free_in_s.begin(), free_in_s.end());
  const auto on_loan = static_cast<int>(free_in_s.size());
  std::string text = fmt::format("it needs {}, and may use {} on loan ({} idle{}): ", nodes_text(job.nodes), on_loan,
                                 idle, cleaned > 0 ? fmt::format(", {} being cleaned up", cleaned) : "");
  if (on_loan < job.nodes) return text + "more nodes must be lent first";
  if (idle >= job.nodes) return text + "Slurm may start it at any moment, or has others that come before it";
  const double wait_s = free_in_s[static_cast<std::size_t>(job.nodes - 1)];
  if (wait_s == 0) return text + "enough of the others are about to be free";
  if (wait_s > kNoLimit_s) {
    return text +
           fmt::format("when is not known, for jobs on the others have no time limit, or more than {} left of it",
                       plural(static_cast<std::size_t>(kNoLimit_days), "day"));
  }
  return text + fmt::format("by their time limits, jobs leave enough of the others within {}", format_duration(wait_s));
}

}  // namespace

std::string not_waiting_text(const slurm::Job& job) {
  if (job.runs()) return fmt::format("job {} does not wait: it is on {}", job.id, plain_text(job.nodes, kReasonChars));
  if (!job.pending()) return fmt::format("job {} does not wait: it is {}", job.id, plain_text(job.state, kReasonChars));
  if (job.held()) return fmt::format("job {0} is held: release it with scontrol release {0}", job.id);
  if (job.reason == "Dependency")
    return fmt::format("job {0} waits for other jobs: scontrol show job {0} names them", job.id);
  if (job.reason == "Resources" || job.reason == "Priority") return "";
  return fmt::format(
      "job {0} waits for Slurm's reason {1}, which nodes on loan do not change: see scontrol show job {0}", job.id,
      job.reason.empty() ? "None" : plain_text(job.reason, kReasonChars));
}

std::string waiting_text(const slurm::Job& job, const View& view, const Plan& plan, const Policy& policy) {
  const std::string& partition = policy.slurm.loan_partition;
  if (std::ranges::count(view.waiting, job.id) == 0) {
    return fmt::format(
        "job {0} waits for nodes, but not in partition {1}: ms-loan has nothing to do with it, see "
        "scontrol show job {0}\n",
        job.id, partition);
  }
  const auto wanted = std::ranges::find(view.wants, job.id, &WaitingJob::id);
  if (wanted == view.wants.end()) {
    return fmt::format(
        "job {0} names nodes or features, or is a part of a heterogeneous job: when it starts is known to "
        "Slurm alone, see scontrol show job {0}\n",
        job.id);
  }
  const auto could = static_cast<int>(
      std::ranges::count_if(view.nodes, [&](const LiveNode& node) { return is_wanted(*wanted, node); }));
  const auto usable =
      static_cast<int>(std::ranges::count_if(view.nodes, [](const LiveNode& node) { return node.trouble.empty(); }));
  const int needed = std::min(needed_nodes(view.demand_nodes, policy.loan), usable);
  std::string text = fmt::format("job {} waits for {} in partition {}\n", job.id, nodes_text(wanted->nodes), partition);
  if (could < wanted->nodes) {
    return text + fmt::format(
                      "it cannot start: of the {} of the policy it could have {}; the others are in trouble, or it "
                      "excludes them\n",
                      nodes_text(static_cast<int>(view.nodes.size())), could);
  }
  if (usable - needed < wanted->nodes) {
    text +=
        fmt::format("inference needs {} of {} now: the job can start when it needs at most {}, at an unknown time\n",
                    needed, usable, usable - wanted->nodes);
  } else {
    text += when(view, *wanted) + "\n";
  }
  if (view.waiting.size() > 1)
    text +=
        fmt::format("{} of the partition: which starts first is Slurm's choice\n",
                    view.waiting.size() == 2 ? "1 other job waits for nodes"
                                             : fmt::format("{} other jobs wait for nodes", view.waiting.size() - 1));
  for (const Action& action : plan.actions) {
    const std::string object = action.node.empty() ? fmt::format("job {}", action.job) : action.node;
    text += fmt::format("at its next poll act does: {} {}: {}\n", to_string(action.step), object, action.reason);
  }
  for (const std::string& note : plan.notes) text += fmt::format("not now: {}\n", note);
  return text;
}

}  // namespace ms::loan
