#include "loan/knapsack.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace ms::loan {
namespace {

using Choice = std::uint16_t;  // an item plus one; 0: none

std::int64_t common_divisor(std::span<const Group> groups) {
  std::int64_t divisor = 0;
  for (const Group& group : groups) {
    for (const Item& item : group) divisor = std::gcd(divisor, item.weight);
  }
  return std::max<std::int64_t>(divisor, 1);
}

std::int64_t heaviest(const Group& group) {
  std::int64_t weight = 0;
  for (const Item& item : group) weight = std::max(weight, item.weight);
  return weight;
}

}  // namespace

Extras solve_knapsack(std::span<const Group> groups, std::int64_t capacity) {
  const std::int64_t unit = common_divisor(groups);
  std::int64_t most = 0;  // no more can be used
  for (const Group& group : groups) {
    MS_ASSERT(group.size() < std::numeric_limits<Choice>::max(), "a job has {} choices", group.size());
    most += heaviest(group) / unit;
  }
  const std::int64_t size = std::min(std::max<std::int64_t>(capacity, 0) / unit, most);
  const auto width = static_cast<std::size_t>(size) + 1;
  std::vector<double> best(width, 0.0);  // by capacity, of the groups so far
  std::vector<double> before(width);
  std::vector<Choice> chosen(width * groups.size(), 0);
  std::int64_t reach = 0;  // above it, best[] of the groups so far is best[reach]
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::int64_t reached = reach;
    reach = std::min(size, reach + heaviest(groups[g]) / unit);
    for (std::int64_t c = reached + 1; c <= reach; ++c) {
      best[static_cast<std::size_t>(c)] = best[static_cast<std::size_t>(reached)];
    }
    std::copy_n(best.begin(), reach + 1, before.begin());
    Choice* const row = chosen.data() + width * g;
    for (std::size_t i = 0; i < groups[g].size(); ++i) {
      const std::int64_t weight = groups[g][i].weight / unit;
      const double value = groups[g][i].value;
      if (value <= 0) continue;
      for (std::int64_t c = weight; c <= reach; ++c) {
        const double with = before[static_cast<std::size_t>(c - weight)] + value;
        if (with <= best[static_cast<std::size_t>(c)]) continue;
        best[static_cast<std::size_t>(c)] = with;
        row[c] = static_cast<Choice>(i + 1);
      }
    }
  }
  Extras extras{.item = std::vector<int>(groups.size(), -1), .value = best[static_cast<std::size_t>(reach)]};
  std::int64_t left = reach;
  std::vector<std::int64_t> reaches(groups.size() + 1, 0);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    reaches[g + 1] = std::min(size, reaches[g] + heaviest(groups[g]) / unit);
  }
  for (std::size_t g = groups.size(); g-- > 0;) {
    left = std::min(left, reaches[g + 1]);
    const Choice choice = chosen[width * g + static_cast<std::size_t>(left)];
    if (choice == 0) continue;
    extras.item[g] = choice - 1;
    left -= groups[g][choice - 1U].weight / unit;
  }
  return extras;
}

Extras equal_shares(std::span<const Group> groups, std::int64_t capacity) {
  Extras extras{.item = std::vector<int>(groups.size(), -1)};
  for (bool grown = true; grown;) {
    grown = false;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto next = static_cast<std::size_t>(extras.item[g] + 1);
      if (next == groups[g].size()) continue;
      const std::int64_t more = groups[g][next].weight - (next == 0 ? 0 : groups[g][next - 1].weight);
      if (more > capacity) continue;
      capacity -= more;
      extras.item[g] = static_cast<int>(next);
      grown = true;
    }
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (extras.item[g] >= 0) extras.value += groups[g][static_cast<std::size_t>(extras.item[g])].value;
  }
  return extras;
}

}  // namespace ms::loan
