#include "loan/extras.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace ms::loan {

Group extra_choices(const SpeedCurve& curve, int base, std::span<const int> sizes, int now, double left_s,
                    double overhead_s) {
  const double stay_s = now == base ? 0 : overhead_s;  // the cost of having none any more
  Group group;
  for (const int size : sizes) {
    if (size <= base) continue;
    const double saved_s = left_s - left_s / curve.speedup(base, size);
    const double change_s = size == now ? 0 : overhead_s;
    group.push_back({.weight = size - base, .value = saved_s - change_s + stay_s});
  }
  return group;
}

std::string speed_words(const LiveJob& job, int nodes) {
  return fmt::format("{:.2g} times as fast {}", job.curve.speedup(job.nodes, nodes),
                     job.has_curve ? "by its own curve" : "if speed goes with nodes: it publishes no curve");
}

std::optional<Growth> choose_growth(const View& view, const Memory& memory, const Policy& policy, int idle) {
  std::vector<int> jobs;
  std::vector<Group> groups;
  for (std::size_t index = 0; index < view.jobs.size(); ++index) {
    const LiveJob& job = view.jobs[index];
    if (!job.may_grow || memory.growing.contains(job.id)) continue;
    jobs.push_back(static_cast<int>(index));
    groups.push_back(extra_choices(job.curve, job.nodes, job.sizes, job.nodes,
                                   std::min(job.left_s, policy.schedule.horizon_s), policy.jobs.scale_overhead_s));
  }
  const Extras extras = solve_knapsack(groups, idle);
  std::optional<std::size_t> best;
  const auto chosen = [&](std::size_t i) { return groups[i][static_cast<std::size_t>(extras.item[i])]; };
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (extras.item[i] >= 0 && (!best || chosen(i).value > chosen(*best).value)) best = i;
  }
  if (!best) return std::nullopt;
  const int job = jobs[*best];
  return Growth{.job = job,
                .nodes = view.jobs[static_cast<std::size_t>(job)].nodes + static_cast<int>(chosen(*best).weight)};
}

namespace {

// A run that can give up nodes.
struct Giver {
  int job = 0;
  std::vector<std::string> nodes = {};  // that it could give up, in order
  int least = 0;                        // so many it keeps
  Group group = {};                     // what it has above that
};

bool excludes(const WaitingJob& job, const std::string& node) { return std::ranges::count(job.excluded, node) > 0; }

class GivingUp {
 public:
  GivingUp(const View& view, const Memory& memory, const Policy& policy)
      : view_(view), memory_(memory), policy_(policy) {}

  // The nodes that runs give up, so that there are `missing` that the job takes; empty: there are not.
  std::vector<Release> nodes_for(const WaitingJob& waiting, int missing) {
    std::vector<Giver> givers;
    std::vector<Group> groups;
    could_give_ = 0;
    for (std::size_t index = 0; index < view_.jobs.size(); ++index) {
      std::optional<Giver> giver = giver_of(static_cast<int>(index), waiting);
      if (!giver) continue;
      could_give_ += view_.jobs[index].nodes - giver->least;
      groups.push_back(giver->group);
      givers.push_back(*std::move(giver));
    }
    if (could_give_ < missing) return {};
    const Extras kept = solve_knapsack(groups, could_give_ - missing);
    std::vector<Release> releases;
    for (std::size_t i = 0; i < givers.size(); ++i) {
      const Giver& giver = givers[i];
      const int item = kept.item[i];
      const auto more = item < 0 ? 0 : static_cast<int>(giver.group[static_cast<std::size_t>(item)].weight);
      const int count = view_.jobs[static_cast<std::size_t>(giver.job)].nodes - giver.least - more;
      if (count > 0) releases.push_back({.job = giver.job, .nodes = {giver.nodes.end() - count, giver.nodes.end()}});
    }
    return releases;
  }
  int could_give() const { return could_give_; }

 private:
  bool settled(const LiveJob& job) const {
    const auto sized = memory_.sized.find(job.id);
    return sized != memory_.sized.end() && view_.now_s >= sized->second.since_s + policy_.schedule.settle_s;
  }

  std::optional<Giver> giver_of(int index, const WaitingJob& waiting) const {
    const LiveJob& job = view_.jobs[static_cast<std::size_t>(index)];
    const bool is_asked = memory_.notices.contains(job.id) || memory_.growing.contains(job.id);
    if (job.least_nodes == 0 || is_asked || !settled(job)) return std::nullopt;
    Giver giver{.job = index};
    for (const LiveNode& node : view_.nodes) {
      const bool alone = node.jobs.size() == 1 && node.jobs.front() == index;
      if (alone && node.on_loan && node.trouble.empty() && node.name != job.batch_node && !excludes(waiting, node.name))
        giver.nodes.push_back(node.name);
    }
    const int least = std::max(job.least_nodes, job.nodes - static_cast<int>(giver.nodes.size()));
    std::vector<int> sizes;
    for (int size = least; size <= job.nodes; ++size) {
      const bool works = job.sizes.empty() || std::ranges::count(job.sizes, size) > 0;
      if (works || size == job.nodes) sizes.push_back(size);
    }
    if (sizes.empty() || sizes.front() == job.nodes) return std::nullopt;
    giver.least = sizes.front();
    giver.group = extra_choices(job.curve, giver.least, sizes, job.nodes,
                                std::min(job.left_s, policy_.schedule.horizon_s), policy_.jobs.scale_overhead_s);
    return giver;
  }

  const View& view_;
  const Memory& memory_;
  const Policy& policy_;
  int could_give_ = 0;
};

}  // namespace

BaseDemand meet_base_demand(const View& view, const Memory& memory, const Policy& policy,
                            std::vector<std::string> free) {
  std::vector<WaitingJob> waiting = view.wants;
  std::ranges::sort(waiting, [](const WaitingJob& a, const WaitingJob& b) {
    return a.limit_s != b.limit_s ? a.limit_s < b.limit_s : a.id < b.id;
  });
  const auto depth = static_cast<std::size_t>(policy.schedule.backfill_depth) + 1;
  if (waiting.size() > depth) waiting.resize(depth);
  GivingUp giving(view, memory, policy);
  BaseDemand demand;
  for (const WaitingJob& job : waiting) {
    const auto usable =
        static_cast<int>(std::ranges::count_if(free, [&](const std::string& node) { return !excludes(job, node); }));
    if (usable >= job.nodes) {  // Slurm starts it without us
      int taken = 0;
      std::erase_if(free, [&](const std::string& node) { return !excludes(job, node) && taken++ < job.nodes; });
      continue;
    }
    demand.releases = giving.nodes_for(job, job.nodes - usable);
    if (!demand.releases.empty()) {
      demand.job = job;
      demand.idle = usable;
      return demand;
    }
    if (!demand.notes.empty()) continue;
    demand.notes.push_back(fmt::format("job {} waits for {}: {} idle or on the way, and elastic runs can give up {}",
                                       job.id, plural(static_cast<std::size_t>(job.nodes), "node"), usable,
                                       giving.could_give()));
  }
  return demand;
}

}  // namespace ms::loan
