#include "loan/schedulers.h"

#include <algorithm>
#include <array>

namespace ms::loan {
namespace {

constexpr std::array<Scheduler, 12> kSchedulers{{
    {"fifo", Order::first_come, Lend::none, VictimRule::cost, Extra::none, "first come, first served; no loans"},
    {"sjf", Order::shortest_first, Lend::none, VictimRule::cost, Extra::none,
     "the shortest job among those that fit; no loans"},
    {"backfill", Order::backfill, Lend::none, VictimRule::cost, Extra::none,
     "first come, first served, with EASY backfill; no loans"},
    {"slurm", Order::backfill, Lend::all, VictimRule::youngest, Extra::none,
     "backfill, and a low-tier partition over all idle inference nodes; Slurm preempts its youngest jobs"},
    {"loaning", Order::shortest_first, Lend::reserve, VictimRule::cost, Extra::none,
     "sjf with loans; victims by server preemption cost"},
    {"loaning-random", Order::shortest_first, Lend::reserve, VictimRule::random, Extra::none,
     "loaning with random victims"},
    {"loaning-youngest", Order::shortest_first, Lend::reserve, VictimRule::youngest, Extra::none,
     "loaning with the victims that Slurm would choose"},
    {"elastic", Order::shortest_first, Lend::none, VictimRule::cost, Extra::knapsack,
     "sjf, with extra workers chosen by a knapsack; no loans"},
    {"both", Order::shortest_first, Lend::reserve, VictimRule::cost, Extra::knapsack, "loaning and elastic"},
    {"both-random", Order::shortest_first, Lend::reserve, VictimRule::random, Extra::knapsack,
     "both with random victims"},
    {"both-youngest", Order::shortest_first, Lend::reserve, VictimRule::youngest, Extra::knapsack,
     "both with the victims that Slurm would choose"},
    {"both-equal", Order::shortest_first, Lend::reserve, VictimRule::cost, Extra::equal,
     "both with equal shares instead of the knapsack"},
}};

}  // namespace

std::span<const Scheduler> schedulers() { return kSchedulers; }

const Scheduler* find_scheduler(std::string_view name) {
  const auto* const found =
      std::find_if(kSchedulers.begin(), kSchedulers.end(), [&](const Scheduler& row) { return row.name == name; });
  return found == kSchedulers.end() ? nullptr : found;
}

}  // namespace ms::loan
