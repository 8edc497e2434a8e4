// How scores of several models make one.
#include "predict/method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "support/errors.h"

namespace ms::predict {
namespace {

using test::thrown_by;

std::vector<std::size_t> best(const std::vector<float>& scores, std::size_t count) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(count);
  return order;
}

TEST(PredictMethods, ParallelIsTheIntersectionOfTopSets) {
  const std::vector<std::vector<float>> members{{9, 8, 7, 1, 0, -1}, {80, 10, 90, 70, 5, 0}, {3, -5, 2, 1, 4, -9}};
  const std::vector<float> all = combined({.combine = Combine::parallel}, members);
  EXPECT_THAT(best(all, 2), testing::ElementsAre(0, 2)) << "in the first three of each";
}

TEST(PredictMethods, ACascadeClearsByTheFirstAndDecidesByTheSecond) {
  std::vector<float> first(20), second(20);
  for (std::size_t i = 0; i < first.size(); ++i) {
    first[i] = static_cast<float>(i);
    second[i] = -static_cast<float>(i);
  }
  const std::vector<float> all = combined({.combine = Combine::cascade}, std::vector{first, second});
  EXPECT_THAT(best(all, 5), testing::ElementsAre(16, 17, 18, 19, 15)) << "16 to 19 are not cleared";
}

TEST(PredictMethods, NamesAreChecked) {
  std::vector<std::string> notes;
  const std::vector<Method> two = methods_of("logistic, cascade", notes);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[1].members.size(), 2U);
  EXPECT_EQ(thrown_by([&] { methods_of("lstm", notes); }).kind(), "predict.model");
  EXPECT_EQ(thrown_by([&] { method_of("cascade", {"cnn"}); }).kind(), "predict.file");
  EXPECT_EQ(thrown_by([&] { method_of("logistic", {"nobody"}); }).kind(), "predict.file");
}

}  // namespace
}  // namespace ms::predict
