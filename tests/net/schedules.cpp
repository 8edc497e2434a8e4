// How many rounds and seconds each schedule takes on a thousand nodes, and how many tests it takes to find k bad ones:
// no network, the real schedules and the real search.   usage: schedules [NODES]
#include <fmt/format.h>

#include <cstdlib>
#include <set>

#include "../unit/net/fake_fabric.h"
#include "net/agents/agent_pool.h"

namespace {

using namespace ms::net;  // NOLINT: a main

void row(const char* name, const std::vector<Round>& rounds) {
  std::size_t pairs = 0;
  for (const Round& round : rounds) pairs += round.size();
  fmt::print("{:<28} {:>6} rounds {:>8} pairs {:>9.1f} s\n", name, rounds.size(), pairs,
             static_cast<double>(rounds.size()) * most_seconds({}));
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 1024;
  row("quick cover", quick_cover(n));
  row("ring shifts", ring_shifts(n));
  row("all pairs (round robin)", round_robin(n));
  std::vector<Round> near;
  const auto distance = [](int a, int b) { return a / 32 == b / 32 ? 0 : a / 256 == b / 256 ? 1 : 2; };
  for (const DistanceRounds& of : by_distance(n, distance)) {
    row(of.distance == 0   ? "same leaf (32 nodes)"
        : of.distance == 1 ? "same pod (256 nodes)"
                           : "across pods",
        of.rounds);
  }
  fmt::print("\nfinding k slow nodes of {}: tests of the cover, tests after it, rounds, all found and nobody else\n",
             n);
  for (const int k : {0, 1, 2, 4, 8, 16}) {
    test::FakeFabric fabric(n, 7);
    std::set<int> bad;
    while (static_cast<int>(bad.size()) < k) bad.insert(fabric.pick(n));
    fabric.way_fault = [&](int from, int to, Way& way) {
      if (bad.contains(from) || bad.contains(to)) way.gbps *= 0.5;
    };
    const Locator locator = fabric.locate();
    std::set<int> found;
    for (const Fault& fault : locator.faults()) found.insert(fault.culprit.b < 0 ? fault.culprit.a : -1);
    const std::int64_t cover = std::int64_t{kCover} * (n / 2);
    fmt::print("{:>3} {:>7} {:>5} {:>4} {:>9.1f} s  {}\n", k, cover, fabric.probes - cover, fabric.rounds,
               fabric.rounds * most_seconds({}), found == bad ? "yes" : "no");
  }
}
