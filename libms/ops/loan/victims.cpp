#include "loan/victims.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/rng.h"

namespace ms::loan {
namespace {

// The choice so far: which jobs are preempted, and how many of them each node still waits for.
class Choice {
 public:
  Choice(std::span<const LoanedNode> nodes, std::span<const LoanedJob> jobs)
      : nodes_(nodes), jobs_(jobs), nodes_of_(jobs.size()), preempted_(jobs.size()), waits_(nodes.size()) {
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      waits_[n] = nodes[n].jobs.size();
      empty_ += waits_[n] == 0;
      for (const int job : nodes[n].jobs) nodes_of_[static_cast<std::size_t>(job)].push_back(n);
    }
  }

  void preempt(int job) {
    const auto j = static_cast<std::size_t>(job);
    if (preempted_[j]) return;
    preempted_[j] = true;
    order_.push_back(job);
    for (const std::size_t n : nodes_of_[j]) empty_ += --waits_[n] == 0;
  }
  void preempt_all_on(std::size_t node) {
    for (const int job : nodes_[node].jobs) preempt(job);
  }

  // Takes jobs off the list whose nodes are not needed, the latest pick last: it was made knowing the others.
  void spare(int count) {
    std::erase_if(order_, [&](int job) {
      const auto& nodes = nodes_of_[static_cast<std::size_t>(job)];
      const auto filled = std::count_if(nodes.begin(), nodes.end(), [&](std::size_t n) { return waits_[n] == 0; });
      if (empty_ - static_cast<int>(filled) < count) return false;
      for (const std::size_t n : nodes) ++waits_[n];
      empty_ -= static_cast<int>(filled);
      preempted_[static_cast<std::size_t>(job)] = false;
      return true;
    });
  }

  double cost(std::size_t node) const {
    double sum = 0;
    for (const int job : nodes_[node].jobs) {
      if (!preempted_[static_cast<std::size_t>(job)]) sum += 1.0 / jobs_[static_cast<std::size_t>(job)].nodes;
    }
    return sum;
  }
  bool has_nodes(int job) const { return !nodes_of_[static_cast<std::size_t>(job)].empty(); }
  bool is_empty(std::size_t node) const { return waits_[node] == 0; }
  int empty() const { return empty_; }

  // Returns nodes that no job is on any more. Those that no job was on before come first.
  Victims result(int count) const {
    Victims victims{.nodes = {}, .jobs = order_};
    for (const bool occupied : {false, true}) {
      for (std::size_t n = 0; n < nodes_.size() && std::ssize(victims.nodes) < count; ++n) {
        if (waits_[n] == 0 && nodes_[n].jobs.empty() != occupied) victims.nodes.push_back(nodes_[n].id);
      }
    }
    return victims;
  }

 private:
  std::span<const LoanedNode> nodes_;
  std::span<const LoanedJob> jobs_;
  std::vector<std::vector<std::size_t>> nodes_of_;
  std::vector<bool> preempted_;
  std::vector<std::size_t> waits_;
  std::vector<int> order_;
  int empty_ = 0;
};

void by_cost(Choice& choice, std::span<const LoanedNode> nodes, std::span<const LoanedJob>, int count, std::uint64_t) {
  while (choice.empty() < count) {
    std::size_t best = nodes.size();
    double least = 0;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      if (choice.is_empty(n)) continue;
      const double cost = choice.cost(n);
      if (best == nodes.size() || cost < least) {
        best = n;
        least = cost;
      }
    }
    choice.preempt_all_on(best);
  }
  choice.spare(count);
}

void at_random(Choice& choice, std::span<const LoanedNode> nodes, std::span<const LoanedJob>, int count,
               std::uint64_t seed) {
  constexpr std::uint64_t kKey = rng_key("loan victims");
  std::vector<std::size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[uniform_below(seed, kKey, left, left)]);
  }
  for (std::size_t i = 0; i < order.size() && choice.empty() < count; ++i) choice.preempt_all_on(order[i]);
}

void youngest_first(Choice& choice, std::span<const LoanedNode>, std::span<const LoanedJob> jobs, int count,
                    std::uint64_t) {
  std::vector<int> order(jobs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return jobs[static_cast<std::size_t>(a)].started_s > jobs[static_cast<std::size_t>(b)].started_s;
  });
  for (std::size_t i = 0; i < order.size() && choice.empty() < count; ++i) {
    if (choice.has_nodes(order[i])) choice.preempt(order[i]);
  }
}

// By VictimRule.
constexpr std::array kRules{by_cost, at_random, youngest_first};

}  // namespace

Victims pick_victims(std::span<const LoanedNode> nodes, std::span<const LoanedJob> jobs, int count, VictimRule rule,
                     std::uint64_t seed) {
  count = std::clamp(count, 0, static_cast<int>(nodes.size()));
  Choice choice(nodes, jobs);
  if (choice.empty() < count) kRules[static_cast<std::size_t>(rule)](choice, nodes, jobs, count, seed);
  return choice.result(count);
}

}  // namespace ms::loan
