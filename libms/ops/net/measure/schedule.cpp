#include "net/measure/schedule.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace ms::net {

std::vector<Round> round_robin(int n) {
  const int even = n + n % 2;
  std::vector<Round> rounds;
  for (int r = 0; r < even - 1; ++r) {
    Round round;
    const auto add = [&](int a, int b) {
      if (a < n && b < n) round.emplace_back(std::min(a, b), std::max(a, b));
    };
    add(r, even - 1);
    for (int i = 1; i < even / 2; ++i) add((r + i) % (even - 1), (r - i + even - 1) % (even - 1));
    rounds.push_back(std::move(round));
  }
  return rounds;
}

std::vector<Round> quick_cover(int n) {
  std::vector<Round> rounds;
  if (n < 2) return rounds;
  Round round;
  for (int i = 0; i + 1 < n; i += 2) round.emplace_back(i, i + 1);
  rounds.push_back(std::move(round));
  if (n % 2 == 1) rounds.push_back({{n - 2, n - 1}});
  return rounds;
}

std::vector<Round> ring_shifts(int n) {
  std::vector<Round> rounds;
  for (int d = 1; d < n; ++d) {
    Round round;
    for (int i = 0; i < n; ++i) round.emplace_back(i, (i + d) % n);
    rounds.push_back(std::move(round));
  }
  return rounds;
}

Round take_round(std::vector<Pair>& wanted, int n) {
  std::vector<bool> busy(static_cast<std::size_t>(n));
  Round round;
  std::erase_if(wanted, [&](const Pair& pair) {
    const auto a = static_cast<std::size_t>(pair.first), b = static_cast<std::size_t>(pair.second);
    if (busy[a] || busy[b]) return false;
    busy[a] = busy[b] = true;
    round.push_back(pair);
    return true;
  });
  return round;
}

std::vector<Round> pack(std::span<const Pair> pairs, int n) {
  std::vector<Round> rounds;
  // Per node, the rounds that it is in: 64 to a word.
  std::vector<std::vector<std::uint64_t>> taken(static_cast<std::size_t>(n));
  for (const Pair& pair : pairs) {
    std::vector<std::uint64_t>& a = taken[static_cast<std::size_t>(pair.first)];
    std::vector<std::uint64_t>& b = taken[static_cast<std::size_t>(pair.second)];
    std::size_t word = 0;
    const auto both = [&](std::size_t w) { return (w < a.size() ? a[w] : 0) | (w < b.size() ? b[w] : 0); };
    while (both(word) == ~std::uint64_t{0}) ++word;
    const auto bit = static_cast<std::size_t>(std::countr_one(both(word)));
    a.resize(std::max(a.size(), word + 1));
    b.resize(std::max(b.size(), word + 1));
    a[word] |= std::uint64_t{1} << bit;
    b[word] |= std::uint64_t{1} << bit;
    const std::size_t round = 64 * word + bit;
    if (round >= rounds.size()) rounds.resize(round + 1);
    rounds[round].push_back(pair);
  }
  return rounds;
}

}  // namespace ms::net
