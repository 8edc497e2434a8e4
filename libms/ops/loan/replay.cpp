#include "loan/replay.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <set>
#include <utility>

#include "base/error.h"
#include "loan/requests.h"
#include "loan/runs.h"
#include "loan/waiting.h"

namespace ms::loan {
namespace {

// In the order in which events of the same time happen.
enum class EventKind : std::uint8_t { finish, returned, demand, poll, arrival, lend, scale, sample };

struct Event {
  double time_s = 0;
  EventKind kind = EventKind::finish;
  int id = 0;       // a job, a batch of returning nodes, or a step of demand
  int version = 0;  // of the job
  auto operator<=>(const Event&) const = default;
};

class Replay {
 public:
  Replay(const JobTrace& trace, const Demand& demand, const Policy& policy, const Scheduler& scheduler)
      : trace_(trace),
        demand_(demand),
        policy_(policy),
        scheduler_(scheduler),
        inference_nodes_(static_cast<int>(policy.cluster.inference_nodes)),
        runs_(trace, policy),
        waits_from_s_(trace.jobs.size(), 0.0) {
    outcome_.scheduler = scheduler.name;
    outcome_.jobs.resize(trace.jobs.size());
  }

  Outcome run() {
    for (std::size_t i = 0; i < trace_.jobs.size(); ++i) {
      push(trace_.jobs[i].submit_s, EventKind::arrival, static_cast<int>(i));
    }
    for (std::size_t i = 0; i < demand_.steps.size(); ++i) {
      push(demand_.steps[i].first, EventKind::demand, static_cast<int>(i));
    }
    lend_later();
    while (done_ < trace_.jobs.size()) {
      MS_ASSERT(!events_.empty(), "{} jobs of the replay never start", trace_.jobs.size() - done_);
      const Event event = events_.top();
      events_.pop();
      ++outcome_.events;
      advance(event.time_s);
      handle(event);
      if (event.kind != EventKind::sample) sample_later();
      if (events_.empty() || events_.top().time_s > now_s_) schedule();
      for (const Runs::End& end : runs_.take_ends()) push(end.time_s, EventKind::finish, end.job, end.version);
    }
    requests_.end(now_s_);
    const double gpus = policy_.train_gpus() + policy_.inference_gpus();
    const double window_s = std::max(trace_.span_s, 1e-9);
    outcome_.usage = (training_gpu_s_ + inference_gpu_s_) / (gpus * window_s);
    outcome_.training_usage = training_gpu_s_ / (policy_.train_gpus() * window_s);
    outcome_.request_wait_max_s = requests_.max_wait_s();
    return std::move(outcome_);
  }

 private:
  int gpus_of(int job) const { return trace_.jobs[static_cast<std::size_t>(job)].gpus; }
  JobOutcome& outcome(int job) { return outcome_.jobs[static_cast<std::size_t>(job)]; }
  void push(double time_s, EventKind kind, int id = 0, int version = 0) { events_.push({time_s, kind, id, version}); }

  void advance(double time_s) {
    const double until_s = std::min(time_s, trace_.span_s);
    if (until_s > now_s_) {
      const Nodes& nodes = runs_.nodes();
      training_gpu_s_ += (until_s - now_s_) * nodes.busy_gpus();
      inference_gpu_s_ += (until_s - now_s_) * std::min(demand_nodes_, inference_has()) * nodes.gpus_per_node();
    }
    now_s_ = time_s;
  }

  int inference_has() const { return inference_nodes_ - runs_.nodes().loaned() - runs_.nodes().returning(); }
  void update_requests(bool demand_fell = false) {
    requests_.update(now_s_, std::max(0, demand_nodes_ - inference_has()), demand_fell);
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case EventKind::finish:
        if (runs_.ends_now({.time_s = event.time_s, .job = event.id, .version = event.version})) finish(event.id);
        break;
      case EventKind::returned: end_return(returns_[static_cast<std::size_t>(event.id)]); break;
      case EventKind::demand: {
        const int before = demand_nodes_;
        demand_nodes_ = demand_.steps[static_cast<std::size_t>(event.id)].second;
        update_requests(demand_nodes_ < before);
        demand_s_ = now_s_;
        lend_later();
        if (scheduler_.lend != Lend::none) push(next_s(policy_.loan.poll_s), EventKind::poll);
        break;
      }
      case EventKind::poll: reclaim(); break;
      case EventKind::arrival: wait(event.id); break;
      case EventKind::lend: lend(); break;
      case EventKind::scale: scale_asked_ = true; break;
      case EventKind::sample: sample(); break;
    }
  }

  // The first multiple of the period that is not before now.
  double next_s(double period_s) const { return std::max(now_s_, std::ceil(now_s_ / period_s) * period_s); }

  // The next sample sees what happens now. It may be of this time: what is then decided is seen by the one behind it.
  void sample_later() {
    if (samples_due_ == 0) push_sample(next_s(kSample_s));
    samples_due_ = 2;
  }
  void push_sample(double time_s) {
    if (time_s <= trace_.span_s) push(time_s, EventKind::sample);
  }

  void sample() {
    const Nodes& nodes = runs_.nodes();
    outcome_.samples.push_back({.time_s = now_s_,
                                .own_busy_gpus = nodes.busy_gpus() - nodes.loaned_busy_gpus(),
                                .loaned_busy_gpus = nodes.loaned_busy_gpus(),
                                .extra_gpus = nodes.extra_gpus(),
                                .loaned_nodes = nodes.loaned(),
                                .demand_nodes = demand_nodes_,
                                .waiting_jobs = waiting_count_});
    if (--samples_due_ > 0) push_sample(now_s_ + kSample_s);
  }

  // ---- loans

  int keeps() const { return scheduler_.lend == Lend::all ? demand_nodes_ : kept_nodes(demand_, policy_.loan, now_s_); }
  int needs() const {
    const int needed = scheduler_.lend == Lend::all ? demand_nodes_ : needed_nodes(demand_nodes_, policy_.loan);
    return std::min(needed, inference_nodes_);
  }

  // At the next multiple of the interval, once: called where inference may have more than it keeps from now on.
  void lend_later() {
    if (scheduler_.lend != Lend::none && !std::exchange(lend_due_, true)) {
      push(next_s(policy_.loan.lend_interval_s), EventKind::lend);
    }
  }

  void lend() {
    // Until the last change of demand is behind the window, what inference keeps falls without an event.
    lend_due_ = scheduler_.lend == Lend::reserve && now_s_ < demand_s_ + policy_.loan.reserve_window_s;
    if (lend_due_) push(now_s_ + policy_.loan.lend_interval_s, EventKind::lend);
    const int count = inference_has() - keeps();
    if (count <= 0 || runs_.nodes().lend(count) == 0) return;
    changed_ = true;
    update_requests();
  }

  void reclaim() {
    const int loaned = runs_.nodes().loaned();
    const int count = std::min(needs() - (inference_nodes_ - loaned), loaned);
    if (count <= 0) return;
    std::vector<int> ids;
    std::vector<LoanedNode> nodes = runs_.nodes().on_loan(ids);
    std::vector<LoanedJob> jobs;
    for (const int id : ids) jobs.push_back(runs_.as_loaned(id));
    for (LoanedNode& node : nodes) {  // those that save already end anyway, and before these nodes are due
      std::erase_if(node.jobs, [&](int index) { return runs_.saving(ids[static_cast<std::size_t>(index)]); });
    }
    Victims victims;
    {
      const Measured measured(outcome_.victims);
      const std::uint64_t seed = static_cast<std::uint64_t>(policy_.jobs.seed) + returns_.size();
      victims = pick_victims(nodes, jobs, count, scheduler_.victims, seed);
    }
    Return back{.nodes = victims.nodes, .jobs = {}};
    for (const int index : victims.jobs) back.jobs.push_back(ids[static_cast<std::size_t>(index)]);
    for (const int job : back.jobs) runs_.begin_saving(job, now_s_);
    for (const int node : back.nodes) runs_.begin_return(node, now_s_);
    outcome_.reclaimed_nodes += static_cast<int>(back.nodes.size());
    push(now_s_ + policy_.loan.return_s(), EventKind::returned, static_cast<int>(returns_.size()));
    returns_.push_back(std::move(back));
    changed_ = true;
  }

  struct Return {
    std::vector<int> nodes, jobs;
  };
  void end_return(const Return& back) {
    for (const int job : back.jobs) {
      runs_.preempt(job);
      ++outcome(job).preemptions;
      ++outcome_.preemptions;
      wait(job);
    }
    for (const int node : back.nodes) runs_.nodes().end_return(node);
    changed_ = true;
    update_requests();
    lend_later();
  }

  // ---- jobs

  Waiting waiting(int job) const {
    const bool shortest = scheduler_.order == Order::shortest_first;
    return {.key = shortest ? runs_.estimate_s(job) : trace_.jobs[static_cast<std::size_t>(job)].submit_s, .job = job};
  }

  void wait(int job) {
    waits_from_s_[static_cast<std::size_t>(job)] = now_s_;
    waiting_.add(gpus_of(job), waiting(job));
    ++waiting_count_;
    changed_ = true;
  }

  bool try_start(int job) {
    if (!runs_.try_start(job, now_s_, scheduler_.extra != Extra::none)) return false;
    waiting_.remove(gpus_of(job), waiting(job));
    --waiting_count_;
    outcome(job).queue_s += now_s_ - waits_from_s_[static_cast<std::size_t>(job)];
    return true;
  }

  void finish(int job) {
    runs_.finish(job);
    outcome(job).end_s = now_s_;
    ++done_;
    changed_ = true;
  }

  // Needed workers first, then the extra ones. Called once all that happens at this time has happened.
  void schedule() {
    if (std::exchange(changed_, false)) start_jobs();
    if (std::exchange(scale_asked_, false)) scale();
  }

  void start_jobs() {
    const Measured measured(outcome_.schedule);
    if (scheduler_.extra != Extra::none && !std::exchange(scale_due_, true)) {
      push(next_s(policy_.schedule.interval_s), EventKind::scale);
    }
    std::set<int> too_large;
    while (const auto head = waiting_.first(too_large)) {
      const auto [gpus, waiting] = *head;
      if (try_start(waiting.job)) continue;
      if (scheduler_.order == Order::backfill) backfill(gpus);
      if (scheduler_.order != Order::shortest_first) return;
      too_large.insert(gpus);
    }
  }

  // Starts later jobs that end before the first one can start, or that leave it the GPUs that it needs then. Counts
  // GPUs, not nodes.
  void backfill(int head_gpus) {
    int free_then = runs_.nodes().free_gpus();
    double head_start_s = now_s_;
    const auto& ends = runs_.expected_ends();
    for (auto end = ends.begin(); end != ends.end() && free_then < head_gpus; ++end) {
      free_then += gpus_of(end->second);
      head_start_s = std::max(now_s_, end->first);
    }
    int spare = free_then - head_gpus;
    const auto front = waiting_.front(static_cast<std::size_t>(policy_.schedule.backfill_depth) + 1);
    for (std::size_t i = 1; i < front.size() && runs_.nodes().free_gpus() > 0; ++i) {
      const auto [gpus, waiting] = front[i];
      const bool ends_before = now_s_ + runs_.estimate_s(waiting.job) <= head_start_s;
      if (!ends_before && gpus > spare) continue;
      if (try_start(waiting.job) && !ends_before) spare -= gpus;
    }
  }

  void scale() {
    scale_due_ = false;
    std::vector<int> jobs;
    Extras extras;
    {
      const Measured measured(outcome_.extra);
      jobs = runs_.elastic(now_s_);
      std::vector<Group> groups;
      for (const int job : jobs) groups.push_back(runs_.choices(job));
      const int capacity = runs_.nodes().free_gpus() + runs_.nodes().extra_gpus();
      extras = scheduler_.extra == Extra::knapsack ? solve_knapsack(groups, capacity) : equal_shares(groups, capacity);
    }
    const auto workers = [&](std::size_t i) { return static_cast<std::size_t>(extras.item[i] + 1); };
    for (std::size_t i = 0; i < jobs.size(); ++i) runs_.shrink(jobs[i], workers(i), now_s_);
    for (std::size_t i = 0; i < jobs.size(); ++i) runs_.grow(jobs[i], workers(i), now_s_);
  }

  const JobTrace& trace_;
  const Demand& demand_;
  const Policy& policy_;
  const Scheduler& scheduler_;
  const int inference_nodes_;
  Runs runs_;
  std::vector<double> waits_from_s_;
  WaitingJobs waiting_;
  int waiting_count_ = 0;
  std::vector<Return> returns_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Requests requests_;
  Outcome outcome_;
  std::size_t done_ = 0;
  double now_s_ = 0, training_gpu_s_ = 0, inference_gpu_s_ = 0;
  double demand_s_ = 0;  // its last change
  int demand_nodes_ = 0;
  int samples_due_ = 0;
  bool lend_due_ = false;
  bool changed_ = false;  // somebody who waits may fit now
  bool scale_asked_ = false;
  bool scale_due_ = false;  // extra workers may be better placed: at the next multiple of the interval
};

}  // namespace

Outcome replay(const JobTrace& trace, const Demand& demand, const Policy& policy, const Scheduler& scheduler) {
  return Replay(trace, demand, policy, scheduler).run();
}

}  // namespace ms::loan
