// Who is tested with whom, and when: rounds of pairs that share no node, so that pairs meet each
// other's traffic in the switches only. Pure.
#pragma once

#include <span>
#include <utility>
#include <vector>

namespace ms::net {

using Pair = std::pair<int, int>;  // nodes
using Round = std::vector<Pair>;

// Every pair once, by the circle method (Kirkman, 1847): n-1 rounds where n is even, else n with one node idle each.
std::vector<Round> round_robin(int n);
// Everybody at least once, neighbours with each other: one round, where n is odd a second one with a single pair.
std::vector<Round> quick_cover(int n);
// mpiGraph's: in round d (1 .. n-1) everybody sends to the d-th behind it. Pairs are (sender, receiver), and each node
// is in two of them.
std::vector<Round> ring_shifts(int n);

// Every pair once, near ones first: rounds hold pairs of one distance only. `distance(a, b)` from 0 on.
struct DistanceRounds {
  int distance;
  std::vector<Round> rounds;
};
template <class Distance>
std::vector<DistanceRounds> by_distance(int n, Distance distance);

// As many of the pairs as fit into one round, the first ones first; they are taken out of `wanted`.
Round take_round(std::vector<Pair>& wanted, int n);
// Rounds for all of them, each pair in the first that has room.
std::vector<Round> pack(std::span<const Pair> pairs, int n);

template <class Distance>
std::vector<DistanceRounds> by_distance(int n, Distance distance) {
  std::vector<std::vector<Pair>> pairs;
  for (const Round& round : round_robin(n)) {
    for (const Pair& pair : round) {
      const auto d = static_cast<std::size_t>(distance(pair.first, pair.second));
      if (d >= pairs.size()) pairs.resize(d + 1);
      pairs[d].push_back(pair);
    }
  }
  std::vector<DistanceRounds> result;
  for (std::size_t d = 0; d < pairs.size(); ++d)
    if (!pairs[d].empty()) result.push_back({static_cast<int>(d), pack(pairs[d], n)});
  return result;
}

}  // namespace ms::net
