// The extra workers of elastic jobs as a multiple-choice knapsack: pure. Of each group (a job) one item (so many extra
// GPUs) is taken, or none, so that the weights fit and the sum of the values is the greatest there is. Exact, by
// dynamic programming over the capacity: time O(capacity x items), memory capacity x groups x 2 bytes, after all
// weights are divided by what divides them all. 10,000 GPUs and 1,000 jobs of eight items take a tenth of a second.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ms::loan {

struct Item {
  std::int64_t weight = 0;  // GPUs, above 0
  double value = 0;         // seconds of job completion time saved; items worth nothing are not taken
};

using Group = std::vector<Item>;

struct Extras {
  std::vector<int> item;  // by group: which one, -1: none
  double value = 0;
};

// The greatest value. Of equal ones the same is returned every time.
Extras solve_knapsack(std::span<const Group> groups, std::int64_t capacity);

// For comparison: workers in turns, one step up the items of each group at a time, whatever they are worth. Items are
// in the order of their weights.
Extras equal_shares(std::span<const Group> groups, std::int64_t capacity);

}  // namespace ms::loan
