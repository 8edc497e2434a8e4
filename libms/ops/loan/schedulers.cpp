#include "loan/schedulers.h"

#include <algorithm>
#include <array>

namespace ms::loan {
namespace {

constexpr std::array<Scheduler, 12> kSchedulers{{
    {.name = "fifo", .order = Order::first_come, .doc = "first come, first served; no loans"},
    {.name = "sjf", .order = Order::shortest_first, .doc = "the shortest job among those that fit; no loans"},
    {.name = "backfill", .order = Order::backfill, .doc = "first come, first served, with EASY backfill; no loans"},
    {.name = "slurm",
     .order = Order::backfill,
     .lend = Lend::all,
     .victims = VictimRule::youngest,
     .doc = "backfill, and a low-tier partition over all idle inference nodes; Slurm preempts its youngest jobs"},
    {.name = "loaning",
     .order = Order::shortest_first,
     .lend = Lend::reserve,
     .doc = "sjf with loans; victims by server preemption cost"},
    {.name = "loaning-random",
     .order = Order::shortest_first,
     .lend = Lend::reserve,
     .victims = VictimRule::random,
     .doc = "loaning with random victims"},
    {.name = "loaning-youngest",
     .order = Order::shortest_first,
     .lend = Lend::reserve,
     .victims = VictimRule::youngest,
     .doc = "loaning with the victims that Slurm would choose"},
    {.name = "elastic",
     .order = Order::shortest_first,
     .extra = Extra::knapsack,
     .doc = "sjf, with extra workers chosen by a knapsack; no loans"},
    {.name = "both",
     .order = Order::shortest_first,
     .lend = Lend::reserve,
     .extra = Extra::knapsack,
     .doc = "loaning and elastic"},
    {.name = "both-random",
     .order = Order::shortest_first,
     .lend = Lend::reserve,
     .victims = VictimRule::random,
     .extra = Extra::knapsack,
     .doc = "both with random victims"},
    {.name = "both-youngest",
     .order = Order::shortest_first,
     .lend = Lend::reserve,
     .victims = VictimRule::youngest,
     .extra = Extra::knapsack,
     .doc = "both with the victims that Slurm would choose"},
    {.name = "both-equal",
     .order = Order::shortest_first,
     .lend = Lend::reserve,
     .extra = Extra::equal,
     .doc = "both with equal shares instead of the knapsack"},
}};

}  // namespace

std::span<const Scheduler> schedulers() { return kSchedulers; }

const Scheduler* find_scheduler(std::string_view name) {
  const auto* const found =
      std::find_if(kSchedulers.begin(), kSchedulers.end(), [&](const Scheduler& row) { return row.name == name; });
  return found == kSchedulers.end() ? nullptr : found;
}

}  // namespace ms::loan
