// Chooses few of many combinations such that any two values that occur together in one of them occur together in a
// chosen one: most defects of combinations take two values to show. All combinations run by night.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ms::testing_case {

// Returns some of `rows`, in their order. `values` gives the values of a row, one for each dimension, always as many.
template <class Row, class Values>
std::vector<Row> pairwise(const std::vector<Row>& rows, const Values& values) {
  using Pair = std::pair<std::pair<std::size_t, std::string>, std::pair<std::size_t, std::string>>;
  std::vector<std::set<Pair>> pairs_of;
  std::set<Pair> missing;
  for (const Row& row : rows) {
    const std::vector<std::string> all = values(row);
    std::set<Pair> pairs;
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = i + 1; j < all.size(); ++j) pairs.insert({{i, all[i]}, {j, all[j]}});
    }
    missing.insert(pairs.begin(), pairs.end());
    pairs_of.push_back(std::move(pairs));
  }
  std::set<std::size_t> chosen;
  while (!missing.empty()) {
    std::size_t best = 0, most = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::size_t covers = 0;
      for (const Pair& pair : pairs_of[i]) covers += missing.count(pair);
      if (covers > most) best = i, most = covers;
    }
    chosen.insert(best);
    for (const Pair& pair : pairs_of[best]) missing.erase(pair);
  }
  std::vector<Row> result;
  for (const std::size_t i : chosen) result.push_back(rows[i]);
  return result;
}

}  // namespace ms::testing_case
