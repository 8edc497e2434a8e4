#include "net/judge/ecmp.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

namespace ms::net {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Ecmp, SortsAreCutAtTheLargestStep) {
  EXPECT_THAT(lower_sort({1, 1.1, 0.9, 1}, 1.4), IsEmpty());
  EXPECT_THAT(lower_sort({1, 3, 1.1, 2.9}, 1.4), ElementsAre(0, 2));
  EXPECT_THAT(lower_sort({}, 1.4), IsEmpty());
  EXPECT_THAT(lower_sort({5}, 1.4), IsEmpty());
  EXPECT_THAT(lower_sort({0, 4, 4}, 1.4), ElementsAre(0));
}

// Flows over paths of so many Gbit/s, by a hash: alone each has its path, together they share it.
struct Paths {
  std::vector<double> gbps;
  std::vector<std::size_t> of_flow;

  double noisy(double value) { return value * (1 + 0.05 * std::normal_distribution<double>(0, 1)(random)); }
  FlowJudgement judge() {
    std::vector<double> alone, together;
    for (const std::size_t path : of_flow) {
      alone.push_back(noisy(gbps[path]));
      const auto sharing = static_cast<double>(std::ranges::count(of_flow, path));
      together.push_back(noisy(gbps[path] / sharing));
    }
    return judge_flows(alone, together);
  }
  std::mt19937 random{1};
};

TEST(Ecmp, EvenCollisionAndSlowPathAreToldApart) {
  for (int i = 0; i < 50; ++i) {
    Paths one{.gbps = {100}, .of_flow = {0, 0, 0, 0}};
    one.random.seed(static_cast<unsigned>(i));
    EXPECT_EQ(one.judge().verdict, FlowVerdict::even);
    Paths even{.gbps = {100, 100}, .of_flow = {0, 1, 0, 1}, .random = one.random};
    EXPECT_EQ(even.judge().verdict, FlowVerdict::even);
    EXPECT_NEAR(even.judge().paths, 2, 0.3);
    Paths collision{.gbps = {100, 100}, .of_flow = {0, 1, 0, 0}, .random = one.random};
    EXPECT_EQ(collision.judge().verdict, FlowVerdict::collision);
    EXPECT_THAT(collision.judge().slow, ElementsAre(0, 2, 3));
    Paths slow{.gbps = {100, 40}, .of_flow = {0, 1, 0, 1}, .random = one.random};
    EXPECT_EQ(slow.judge().verdict, FlowVerdict::slow_path);
    EXPECT_THAT(slow.judge().slow, ElementsAre(1, 3));
  }
}

TEST(Ecmp, UnfairSharesOfOnePathAreNoCollision) {
  EXPECT_EQ(judge_flows({96, 95, 96, 95}, {16, 17, 16, 43}).verdict, FlowVerdict::even);
}

TEST(Ecmp, PairsBesideEachOther) {
  EXPECT_EQ(judge_crowding({100, 100, 100}, {98, 95, 97}).sharing, Sharing::none);
  EXPECT_EQ(judge_crowding({100, 100, 100}, {50, 48, 52}).sharing, Sharing::all);
  const Crowding some = judge_crowding({100, 100, 100}, {50, 97, 48});
  EXPECT_EQ(some.sharing, Sharing::some);
  EXPECT_THAT(some.pairs, ElementsAre(0, 2));
}

}  // namespace
}  // namespace ms::net
