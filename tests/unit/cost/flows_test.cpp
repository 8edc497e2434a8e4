// Flows that share, by hand and in random sweeps against the law itself.
#include "cost/flows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace ms::cost {
namespace {

// What flows pass stays where it is while they are under way.
const std::vector<std::uint32_t> kNone, kFirst{0}, kSecond{1};

struct Plan {
  double begin_s, seconds;
  std::vector<std::uint32_t> resources;
};

// When each ends. `at_first` are known from the start; whenever one ends, the next comes, not before that: its begin is
// moved there.
std::vector<double> ends_of(Flows& flows, std::vector<Plan>& plans, std::size_t at_first) {
  std::map<std::uint32_t, std::size_t> under_way;
  std::size_t next = 0;
  const auto start = [&] {
    const Plan& plan = plans[next];
    const bool is_new = under_way.emplace(flows.start(plan.begin_s, plan.seconds, plan.resources), next).second;
    EXPECT_TRUE(is_new) << "one number for two";
    ++next;
  };
  while (next < std::min(at_first, plans.size())) start();
  std::vector<double> ends(plans.size(), -1);
  double last_s = 0;
  while (const auto end = flows.next()) {
    EXPECT_GE(end->at_s, last_s) << "not in the order of time";
    last_s = end->at_s;
    ends[under_way.at(end->flow)] = end->at_s;
    under_way.erase(end->flow);
    if (next == plans.size()) continue;
    plans[next].begin_s = std::max(plans[next].begin_s, last_s);
    start();
  }
  EXPECT_TRUE(under_way.empty()) << "one that never ends";
  return ends;
}

TEST(Flows, ByHand) {
  struct Case {
    const char* what;
    std::vector<double> capacity;
    std::vector<Plan> plans;
    std::vector<double> ends;
  };
  const Case cases[] = {
      {"nothing", {1}, {}, {}},
      {"one alone", {1}, {{2, 3, {0}}}, {5}},
      {"two on one resource", {1}, {{0, 3, {0}}, {0, 3, {0}}}, {6, 6}},
      {"two on one each", {1, 1}, {{0, 3, {0}}, {0, 3, {1}}}, {3, 3}},
      // Half of each from 0 to 4, then the long one has all.
      {"a short and a long one", {1}, {{0, 2, {0}}, {0, 5, {0}}}, {4, 7}},
      // The first has done 2 of 4 when the second comes.
      {"one that starts in the middle", {1}, {{0, 4, {0}}, {2, 4, {0}}}, {6, 8}},
      {"one that starts at the end of another", {1}, {{0, 2, {0}}, {2, 2, {0}}}, {2, 4}},
      // The second is held back by resource 1, where it is one of three; what it leaves of 0 the first does not get.
      {"the scarcest resource", {1, 1}, {{0, 2, {0}}, {0, 2, {0, 1}}, {0, 2, {1}}, {0, 2, {1}}}, {4, 6, 6, 6}},
      {"room for two", {2}, {{0, 3, {0}}, {0, 3, {0}}}, {3, 3}},
      {"room for two of three", {2}, {{0, 2, {0}}, {0, 2, {0}}, {0, 2, {0}}}, {3, 3, 3}},
      {"room for two is no more for one", {2}, {{0, 3, {0}}}, {3}},
      {"room for half of one", {0.5}, {{0, 3, {0}}}, {6}},
      {"no seconds", {1}, {{1, 0, {0}}, {0, 2, {0}}}, {1, 2}},
      {"no resources", {1}, {{1, 2, {}}, {0, 5, {0}}, {1, 2, {}}}, {3, 5, 3}},
      {"neither", {}, {{7, 0, {}}}, {7}},
  };
  for (const Case& c : cases) {
    Flows flows(c.capacity);
    std::vector<Plan> plans = c.plans;
    const std::vector<double> ends = ends_of(flows, plans, plans.size());
    for (std::size_t i = 0; i < c.ends.size(); ++i) EXPECT_NEAR(ends[i], c.ends[i], 1e-12) << c.what << ", flow " << i;
  }
}

TEST(Flows, TiesEndInAFixedOrder) {
  // Of those that are alike, in the order in which they came; of the rest, as it became known. Twice the same.
  std::vector<std::uint32_t> orders[2];
  for (std::vector<std::uint32_t>& order : orders) {
    Flows flows({1, 1});
    std::vector<std::uint32_t> started;
    for (int i = 0; i < 6; ++i) started.push_back(flows.start(0, 1, kFirst));
    while (const auto end = flows.next()) {
      EXPECT_DOUBLE_EQ(end->at_s, 6);
      order.push_back(end->flow);
    }
    EXPECT_EQ(order, started);
    const std::uint32_t a = flows.start(6, 0, kNone), b = flows.start(6, 0, kSecond), c = flows.start(6, 0, kFirst);
    for (const std::uint32_t expected : {a, b, c}) EXPECT_EQ(flows.next()->flow, expected);
    EXPECT_FALSE(flows.next().has_value());
  }
  EXPECT_EQ(orders[0], orders[1]);
}

TEST(Flows, NumbersAreGivenAnew) {
  Flows flows({1});
  const std::uint32_t first = flows.start(0, 2, kFirst), second = flows.start(0, 4, kFirst);
  EXPECT_NE(first, second);
  EXPECT_EQ(flows.next()->flow, first);
  // What was known about the end of the one that had the number before is forgotten.
  const std::uint32_t third = flows.start(4, 1, kFirst);
  EXPECT_EQ(third, first);
  const auto end = flows.next();
  EXPECT_EQ(end->flow, third);
  EXPECT_DOUBLE_EQ(end->at_s, 6);
  const auto last = flows.next();
  EXPECT_EQ(last->flow, second);
  EXPECT_DOUBLE_EQ(last->at_s, 7);
}

// The law: every flow that is under way has of each of its resources an equal part, at most all it can use, and goes as
// fast as the least of them lets it.
double share_of(const Plan& plan, const std::vector<int>& on, const std::vector<double>& capacity) {
  double share = 1;
  for (const std::uint32_t r : plan.resources) share = std::min(share, capacity[r] / on[r]);
  return share;
}

struct Sweep {
  std::vector<double> capacity;
  std::vector<Plan> plans;
};
// Many begin and end at the same times: times are quarters.
Sweep sweep_of(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t end) { return static_cast<int>(random() % end); };
  Sweep sweep;
  for (int i = 0; i < 4; ++i) sweep.capacity.push_back(0.5 * (1 + below(5)));
  const int count = 1 + below(14);
  for (int i = 0; i < count; ++i) {
    Plan plan{.begin_s = below(24) / 4.0, .seconds = below(12) / 4.0, .resources = {}};
    for (std::uint32_t r = 0; r < 4; ++r)
      if (below(5) < 2) plan.resources.push_back(r);
    sweep.plans.push_back(std::move(plan));
  }
  return sweep;
}

TEST(Flows, EachDoesAllItsWork) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    Sweep sweep = sweep_of(seed);
    Flows flows(sweep.capacity);
    const std::vector<double> ends = ends_of(flows, sweep.plans, 1 + seed % 8);
    std::vector<double> times = ends;
    for (const Plan& plan : sweep.plans) times.push_back(plan.begin_s);
    std::ranges::sort(times);
    // Between neighbouring times nothing changes, so that the area under each one's share is a sum.
    std::vector<double> area(ends.size());
    for (std::size_t t = 0; t + 1 < times.size(); ++t) {
      const double middle = (times[t] + times[t + 1]) / 2, length = times[t + 1] - times[t];
      std::vector<int> on(sweep.capacity.size());
      const auto under_way = [&](std::size_t i) { return sweep.plans[i].begin_s < middle && middle < ends[i]; };
      for (std::size_t i = 0; i < ends.size(); ++i)
        if (under_way(i))
          for (const std::uint32_t r : sweep.plans[i].resources) ++on[r];
      for (std::size_t i = 0; i < ends.size(); ++i)
        if (under_way(i)) area[i] += length * share_of(sweep.plans[i], on, sweep.capacity);
    }
    for (std::size_t i = 0; i < ends.size(); ++i)
      ASSERT_NEAR(area[i], sweep.plans[i].seconds, 1e-9) << "seed " << seed << ", flow " << i;
  }
}

TEST(Flows, AsInSmallSteps) {
  // Steps of a 2048th: begins fall on them; an end is seen up to one late, and so is what follows from it.
  constexpr double kStep = 1.0 / 2048;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Sweep sweep = sweep_of(seed);
    Flows flows(sweep.capacity);
    const std::vector<double> ends = ends_of(flows, sweep.plans, sweep.plans.size());
    std::vector<double> left;
    for (const Plan& plan : sweep.plans) left.push_back(plan.seconds);
    std::vector<double> seen(left.size(), -1);
    std::size_t open = left.size();
    for (std::int64_t step = 0; open > 0 && step < 1'000'000; ++step) {
      const double now = static_cast<double>(step) * kStep;
      std::vector<int> on(sweep.capacity.size());
      for (std::size_t i = 0; i < left.size(); ++i) {
        if (seen[i] < 0 && sweep.plans[i].begin_s <= now && left[i] < 1e-9) seen[i] = now, --open;
        if (seen[i] < 0 && sweep.plans[i].begin_s <= now)
          for (const std::uint32_t r : sweep.plans[i].resources) ++on[r];
      }
      for (std::size_t i = 0; i < left.size(); ++i)
        if (seen[i] < 0 && sweep.plans[i].begin_s <= now)
          left[i] -= kStep * share_of(sweep.plans[i], on, sweep.capacity);
    }
    for (std::size_t i = 0; i < left.size(); ++i) ASSERT_NEAR(ends[i], seen[i], 0.03) << seed << " " << i;
  }
}

}  // namespace
}  // namespace ms::cost
